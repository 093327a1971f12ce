/**
 * The command: `tallystick-judge EVIDENCE --job JOB [--trust-referee PEM]... [--json]`.
 *
 * EVIDENCE is evidence, or a page that carries it; of a page's own job the command says so. Exit codes
 * and the object of --json are those of `tallystick judge` (docs/INTERFACE.md).
 */
import { lstatSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";

import { court } from "./court.ts";
import { refuse } from "./src/errors.ts";
import { jobOfPage } from "./src/face/desk.ts";
import { assembleJob, FILE_BYTES, lacking, whatIs, type Assembled } from "./src/face/files.ts";
import type { Judged } from "./src/face/judged.ts";
import { NO_NAMES, visible } from "./src/face/names.ts";
import { PEM_BYTES, readPublicKey } from "./src/face/pem.ts";
import { sentenceOf } from "./src/face/refusals.ts";
import { convictionSentence, wordsOf } from "./src/face/words.ts";
import { LIMITS } from "./src/limits.ts";

const USAGE = "tallystick-judge EVIDENCE --job JOB [--trust-referee PEM]... [--json]";
const PROGRAM_FILE = /^program(?:-[a-z][a-z0-9-]{0,39})?\.txt$/;

/** Ends the command: the code, a sentence, and what to do about it. */
class Ended extends Error {
  constructor(
    readonly code: 2 | 3,
    message: string,
    readonly next: string,
  ) {
    super(message);
  }
}

const usage = (message: string): Ended => new Ended(3, message, `Usage: ${USAGE}`);
const unread = (message: string): Ended => new Ended(2, message, "Name a file that can be read.");

/** A regular file of at most so many bytes. A path that a person names may be a link. */
function bytesOf(path: string, limit: number, mayBeLink: boolean): Uint8Array {
  const named = visible(path);
  try {
    const info = mayBeLink ? statSync(path) : lstatSync(path);
    if (!info.isFile()) throw unread(`${named} is not a regular file.`);
    if (info.size > limit) throw unread(`${named} is longer than any such file may be.`);
    return new Uint8Array(readFileSync(path));
  } catch (error) {
    if (error instanceof Ended) throw error;
    throw unread(`${named} cannot be read.`);
  }
}

/** The files of a job that a judge needs (docs/INTERFACE.md, "Dispute and judge"). */
function jobAt(folder: string): Assembled {
  const named = visible(folder);
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    throw usage(`${named} is no folder that can be read.`);
  }
  if (!names.includes("job.json")) throw usage(`${named} is not a job: it has no job.json.`);
  const programs = names.filter((name) => PROGRAM_FILE.test(name));
  if (programs.length > 64) throw unread(`${named} has too many programs.`);
  const manifest = bytesOf(join(folder, "job.json"), LIMITS.manifestBytes, false);
  return assembleJob(
    manifest,
    programs.map((name) => bytesOf(join(folder, name), LIMITS.programBytes, false)),
  );
}

interface Material {
  readonly evidence: Uint8Array;
  /** The job that came with a page. */
  readonly carried: Assembled | null;
}

function materialAt(path: string): Material {
  const given = whatIs(bytesOf(path, FILE_BYTES, true));
  if (given.kind === "evidence") return { evidence: given.bytes, carried: null };
  if (given.kind === "page") {
    return { evidence: given.carried.evidence, carried: jobOfPage(given.carried) };
  }
  throw new Ended(
    2,
    `${visible(path)} is no evidence.`,
    "Name evidence, or a page that carries it.",
  );
}

interface Arguments {
  readonly evidence: string;
  readonly job: string | undefined;
  readonly referees: readonly string[];
  readonly json: boolean;
}

function argumentsOf(args: readonly string[]): Arguments {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        job: { type: "string" },
        json: { type: "boolean", default: false },
        "trust-referee": { type: "string", multiple: true, default: [] },
      },
    });
    const [evidence, ...others] = positionals;
    if (evidence === undefined) throw usage("There is no evidence to judge.");
    if (others.length > 0) throw usage("One piece of evidence is judged at a time.");
    return { evidence, job: values.job, referees: values["trust-referee"], json: values.json };
  } catch (error) {
    if (error instanceof Ended) throw error;
    throw usage(error instanceof Error ? visible(error.message) : "Wrong usage.");
  }
}

/** A verdict as text: the sentences first, then what one looks up. */
function textOf(judged: Judged, carriedJob: boolean): string {
  const words = wordsOf(judged, NO_NAMES);
  const figures = words.figures.map(({ label, text, note }) =>
    note === "" ? `${label}: ${text}` : `${label}: ${text} (${note})`,
  );
  const job = carriedJob
    ? "The verdict is over the job that came with the page. Name your own with --job."
    : "Judged with your own copy of the job.";
  const parts: (readonly [string, readonly string[]])[] = [
    ["What happened", words.story],
    ["The disputed value", figures],
    ["What that means", words.meaning],
    ["What this shows", words.proves],
    ["What it does not show", words.provesNot],
    ["Who is who", words.parties],
    ["Over what", [job]],
    ["Details", words.details.map(([label, text]) => `${label}: ${text}`)],
  ];
  const sections = parts.flatMap(([title, lines]) =>
    lines.length === 0 ? [] : [`${title}\n${lines.map((line) => `  ${visible(line)}\n`).join("")}`],
  );
  return `${words.headline.toUpperCase()}\n\n${sections.join("\n")}`;
}

function codeOf(judged: Judged): 0 | 1 | 2 {
  if (judged.found.convicted.length > 0) return 1;
  return judged.found.agreement ? 0 : 2;
}

/** JSON in ASCII, as the other commands write it. */
function ascii(value: object): string {
  const text = JSON.stringify(value, null, 2);
  const escape = (c: string): string => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `${text.replace(/[\u007f-\uffff]/g, escape)}\n`;
}

interface Said {
  readonly code: 0 | 1 | 2 | 3;
  readonly out: string;
  readonly err: string;
}

/** The object of --json. */
function objectOf({ found, evidenceDigest }: Judged, evidence: string): object {
  const convicted = found.convicted.map((one) => ({ ...one, sentence: convictionSentence(one) }));
  return { ...found, convicted, evidence, evidence_digest: evidenceDigest };
}

function judged(args: Arguments): Said {
  const { evidence, carried } = materialAt(args.evidence);
  const job = args.job === undefined ? carried : jobAt(args.job);
  if (job === null) throw usage("There is no job to judge by: name one with --job.");
  if (job.missing.length > 0) throw refuse(lacking(job));
  const keys = args.referees.map((path) => readPublicKey(bytesOf(path, PEM_BYTES, true)));
  const found = court.judge(evidence, job.files, keys);
  const out = args.json
    ? ascii(objectOf(found, args.evidence))
    : textOf(found, args.job === undefined);
  return { code: codeOf(found), out, err: "" };
}

function failed(error: unknown, json: boolean): Said {
  const ended =
    error instanceof Ended
      ? error
      : new Ended(2, visible(sentenceOf(error)), "Nobody is convicted by that.");
  const { code, message, next } = ended;
  const kind = code === 3 ? "UsageError" : "CannotCheckError";
  const object = { error: message, next_action: next, kind, exit_code: code };
  return { code, out: json ? ascii(object) : "", err: `tallystick-judge: ${message}\n  ${next}\n` };
}

function run(args: readonly string[]): Said {
  if (args.includes("--help")) return { code: 0, out: `${USAGE}\n`, err: "" };
  try {
    return judged(argumentsOf(args));
  } catch (error) {
    return failed(error, args.includes("--json"));
  }
}

/** The code does not depend on whether anyone reads, but for --json, which has to be delivered. */
function deliver(said: Said, json: boolean): void {
  process.exitCode = said.code;
  process.stderr.on("error", () => undefined);
  process.stdout.on("error", () => {
    if (json) process.exitCode = 2;
  });
  process.stderr.write(said.err);
  process.stdout.write(said.out);
}

const args = process.argv.slice(2);
deliver(run(args), args.includes("--json"));

/**
 * The command: `tallystick-judge EVIDENCE --job JOB [--trust KEY]... [--trust-referee KEY]... [--json]`.
 *
 * EVIDENCE is evidence, or a page that carries it; of a page's own job the command says so. Or it is
 * the directory of a session's referee, or the folder of its log's entries. Exit codes and the object
 * of --json are those of `tallystick judge` and `tallystick referee` (docs/INTERFACE.md).
 */
import process from "node:process";
import { parseArgs } from "node:util";

import { court } from "./court.ts";
import { bytesOf, Ended, entriesAt, isFolder, jobAt } from "./disk.ts";
import { refuse } from "./src/errors.ts";
import { jobOfPage } from "./src/face/desk.ts";
import { FILE_BYTES, lacking, whatIs, type Assembled } from "./src/face/files.ts";
import type { Judged } from "./src/face/judged.ts";
import { NO_NAMES, visible } from "./src/face/names.ts";
import { sessionCode, sessionFacts } from "./src/face/outcomes.ts";
import { PEM_BYTES, readPublicKey } from "./src/face/pem.ts";
import { sentenceOf } from "./src/face/refusals.ts";
import { sessionWords } from "./src/face/sessions.ts";
import { convictionSentence, wordsOf, type Words } from "./src/face/words.ts";
import type { PublicKey } from "./src/signatures.ts";

const USAGE =
  "tallystick-judge EVIDENCE --job JOB [--trust KEY]... [--trust-referee KEY]... [--json]\n" +
  "       tallystick-judge PAGE [--job JOB] [--trust KEY]... [--trust-referee KEY]... [--json]\n" +
  "       tallystick-judge LOG --job JOB [--json]";

const usage = (message: string): Ended => new Ended(3, message, `Usage: ${USAGE}`);

interface Arguments {
  /** Evidence, a page or a log. */
  readonly path: string;
  readonly job: string | undefined;
  readonly trust: readonly string[];
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
        trust: { type: "string", multiple: true, default: [] },
        "trust-referee": { type: "string", multiple: true, default: [] },
      },
    });
    const [path, ...others] = positionals;
    if (path === undefined) throw usage("There is no evidence to judge.");
    if (others.length > 0) throw usage("One piece of evidence is judged at a time.");
    const { job, trust, json } = values;
    return { path, job, trust, referees: values["trust-referee"], json };
  } catch (error) {
    if (error instanceof Ended) throw error;
    throw usage(error instanceof Error ? visible(error.message) : "Wrong usage.");
  }
}

interface Material {
  readonly evidence: Uint8Array;
  /** A page that carries it may bring a job. */
  readonly jobOfPage: (() => Assembled) | null;
}

function materialAt(path: string): Material {
  const given = whatIs(bytesOf(path, FILE_BYTES, true));
  if (given.kind === "evidence") return { evidence: given.bytes, jobOfPage: null };
  if (given.kind === "page") {
    const { carried } = given;
    return { evidence: carried.evidence, jobOfPage: () => jobOfPage(carried) };
  }
  throw new Ended(
    2,
    `${visible(path)} is no evidence.`,
    "Name evidence, a page that carries it, or the directory of a session's referee.",
  );
}

/** The reader's own job, or else the one that came with a page. */
function jobFor(own: string | undefined, ofPage: Material["jobOfPage"]): Assembled {
  const job = own === undefined ? ofPage?.() : jobAt(own);
  if (job === undefined) throw usage("There is no job to judge by: name one with --job.");
  if (job.missing.length > 0) throw refuse(lacking(job));
  return job;
}

/** A result as text: the sentences first, then what one looks up. */
function textOf(words: Words, isOwnJob: boolean): string {
  const figures = words.figures.map(({ label, text, note }) =>
    note === "" ? `${label}: ${text}` : `${label}: ${text} (${note})`,
  );
  const job = isOwnJob
    ? "Judged with your own copy of the job."
    : "The verdict is over the job that came with the page. Name your own with --job.";
  const parts: (readonly [string, readonly string[]])[] = [
    ["What happened", words.story],
    ["The disputed value", figures],
    ["What that means", words.meaning],
    ["What this proves", words.proves],
    ["What it does not prove", words.provesNot],
    ["Who is who", words.parties],
    ["Over what", [job]],
    ["Details", words.details.map(([label, text]) => `${label}: ${text}`)],
  ];
  const sections = parts.flatMap(([title, lines]) =>
    lines.length === 0 ? [] : [`${title}\n${lines.map((line) => `  ${visible(line)}\n`).join("")}`],
  );
  return `${words.headline}.\n\n${sections.join("\n")}`;
}

function codeOf({ found }: Judged): 0 | 1 | 2 {
  if (found.convicted.length > 0) return 1;
  return found.agreement ? 0 : 2;
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

const keysAt = (paths: readonly string[]): PublicKey[] =>
  paths.map((path) => readPublicKey(bytesOf(path, PEM_BYTES, true)));

function judged(args: Arguments): Said {
  const material = materialAt(args.path);
  const job = jobFor(args.job, material.jobOfPage);
  const referees = keysAt(args.referees);
  // Without a list no signer is known, which is another thing than not being in it.
  const trust = args.trust.length > 0 ? { trust: keysAt(args.trust) } : {};
  const found = court.judge(material.evidence, job.files, { referees, ...trust });
  const out = args.json
    ? ascii(objectOf(found, args.path))
    : textOf(wordsOf(found, NO_NAMES), args.job !== undefined);
  return { code: codeOf(found), out, err: "" };
}

/** A session, from the log of its referee (PROTOCOL 12.5). */
function replayed(args: Arguments): Said {
  if (args.trust.length + args.referees.length > 0) {
    throw usage("--trust and --trust-referee are for evidence, not for a session's log.");
  }
  const { files } = jobFor(args.job, null);
  const entries = entriesAt(args.path);
  const outcome = court.readLog(entries, files);
  const out = args.json
    ? ascii(sessionFacts(outcome, entries.length, court.digestOf(files)))
    : textOf(sessionWords(outcome, entries.length, NO_NAMES, court.workOf(files)), true);
  return { code: sessionCode(outcome), out, err: "" };
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

function run(given: readonly string[]): Said {
  if (given.includes("--help")) return { code: 0, out: `${USAGE}\n`, err: "" };
  try {
    const args = argumentsOf(given);
    return isFolder(args.path) ? replayed(args) : judged(args);
  } catch (error) {
    return failed(error, given.includes("--json"));
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

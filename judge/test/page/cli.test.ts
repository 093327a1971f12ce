import { Buffer } from "node:buffer";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { readRunCommitment } from "../../src/commitment.ts";
import { actOf } from "../../src/face/acts.ts";
import { OPENING, writeCarried } from "../../src/face/carried.ts";
import { keyId } from "../../src/face/names.ts";
import { LIMITS } from "../../src/limits.ts";
import { Reader } from "../../src/reader.ts";
import { caseOf, casesOf, type Case } from "../face/material.ts";
import { bytesAt, entriesOf, FILE } from "../session/golden.ts";

const BUILD = new URL("../../build.js", import.meta.url).pathname;
const FOLDER = mkdtempSync(join(tmpdir(), "judge-cli-"));
const COMMAND = join(FOLDER, "tallystick-judge.js");

interface Ran {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function run(...args: readonly string[]): Ran {
  const { status, stdout, stderr } = spawnSync(process.execPath, [COMMAND, ...args], {
    encoding: "utf8",
  });
  return { code: status, out: stdout, err: stderr };
}

/** The arguments that judge a case, whose files are written first. */
function laidOut(one: Case, name: string): string[] {
  const folder = join(FOLDER, name);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "evidence"), one.evidence);
  for (const [file, bytes] of one.job) writeFileSync(join(folder, file), bytes);
  const referees = one.referees.flatMap((pem, i) => {
    const path = join(folder, `referee-${String(i)}.pem`);
    writeFileSync(path, pem);
    return ["--trust-referee", path];
  });
  return [join(folder, "evidence"), "--job", folder, ...referees];
}

const object = ({ out }: Ran): Record<string, unknown> =>
  JSON.parse(out) as Record<string, unknown>;

beforeAll(() => {
  // An ES module needs a package that says so beside it, as in this package's own folder.
  writeFileSync(join(FOLDER, "package.json"), '{"type":"module"}');
  expect(spawnSync(process.execPath, [BUILD, FOLDER]).status).toBe(0);
}, 120_000);

afterAll(() => {
  rmSync(FOLDER, { recursive: true });
});

test.each([
  ["attacks", "ordered/1: lie-output, party 0"],
  ["attacks", "ordered/1: backdoor-label-flip, party 1"],
  ["attacks", "ordered/1: silent, party 0"],
  ["attacks", "ordered/1: unreproducible-root, party 0"],
  ["clauses", "agreement"],
  ["clauses", "two answers to one query"],
  ["refusals", "a forfeit of a referee who is not named"],
  ["refusals", "a bit of a message"],
  ["refusals", "another job"],
])("%s, %s: the code and the object are those of the vector", (bundle, name) => {
  const one = caseOf(bundle, name);
  const ran = run(...laidOut(one, "case"), "--json");
  expect(ran.code).toBe(one.code);
  const found = object(ran);
  if (one.found === undefined) {
    expect(found).toMatchObject({ kind: "CannotCheckError", exit_code: 2 });
    expect(ran.err).toContain("tallystick-judge: ");
  } else {
    expect(found).toMatchObject(one.found);
    expect(found["evidence_digest"]).toMatch(/^[0-9a-f]{64}$/);
  }
});

test("an undecided game is code 2, with the verdict", () => {
  const one = casesOf("logs").find(({ found }) => found?.undecided === true);
  if (one === undefined) throw new Error("no such case");
  const ran = run(...laidOut(one, "undecided"), "--json");
  expect(ran.code).toBe(2);
  expect(object(ran)["undecided"]).toBe(true);
});

test("text for people has the sentences first", () => {
  const ran = run(...laidOut(caseOf("attacks", "ordered/1: lie-output, party 0"), "text"));
  expect(ran.code).toBe(1);
  expect(ran.out).toMatch(/^Party A signed .*, in step 4\.\n\nWhat happened\n/);
  expect(ran.out).toContain("lower by 0.146");
  expect(ran.out).toContain("Judged with your own copy of the job.");
  expect(ran.err).toBe("");
});

test("a page is judged with its own job, and says so, or with another one", () => {
  const one = caseOf("attacks", "ordered/1: lie-output, party 0");
  const [, , folder = ""] = laidOut(one, "page");
  const page = join(FOLDER, "page.html");
  const text = writeCarried({ evidence: one.evidence, job: one.job, names: new Map() });
  writeFileSync(page, `<html>${OPENING}${text}</script></html>`);
  const own = run(page);
  expect(own.code).toBe(1);
  expect(own.out).toContain("over the job that came with the page");
  expect(run(page, "--job", folder).out).toContain("your own copy of the job");
  const [manifest = new Uint8Array()] = one.job.values();
  const more = new Map([...one.job, ["program-more.txt", manifest]]);
  const crowded = writeCarried({ evidence: one.evidence, job: more, names: new Map() });
  writeFileSync(page, `<html>${OPENING}${crowded}</script></html>`);
  expect(run(page).code).toBe(2);
  expect(run(page, "--job", folder).code).toBe(1);
  const [, , other = ""] = laidOut(caseOf("refusals", "another job"), "other");
  expect(run(page, "--job", other).code).toBe(2);
});

test("wrong usage is code 3, what cannot be read is code 2", () => {
  const args = laidOut(caseOf("clauses", "agreement"), "usage");
  const [evidence = "", , folder = ""] = args;
  expect(run().code).toBe(3);
  expect(run(evidence).code).toBe(3);
  expect(run(evidence, evidence, "--job", folder).code).toBe(3);
  expect(run(evidence, "--job", folder, "--other").code).toBe(3);
  expect(run(evidence, "--job", FOLDER).code).toBe(3);
  expect(object(run("--json"))).toMatchObject({ kind: "UsageError", exit_code: 3 });
  expect(run("--help").code).toBe(0);
  expect(run(join(FOLDER, "none"), "--job", folder).code).toBe(2);
  expect(run(FOLDER, "--job", folder).code).toBe(2);
  expect(run(join(folder, "job.json"), "--job", folder).code).toBe(2);
  expect(run(evidence, "--job", folder, "--trust-referee", evidence).code).toBe(2);
});

/** The public key of party A in PEM, from its commitment in the evidence (PROTOCOL 8.1). */
function signerOf(evidence: Uint8Array): string {
  const reader = new Reader(evidence);
  reader.tag("evidence/1");
  reader.hash();
  reader.u64();
  const { signer } = readRunCommitment(reader.blob(LIMITS.commitmentBytes, "a commitment"));
  const info = Buffer.concat([Buffer.from("302a300506032b6570032100", "hex"), signer.raw]);
  return `-----BEGIN PUBLIC KEY-----\n${info.toString("base64")}\n-----END PUBLIC KEY-----\n`;
}

test("a signer is trusted, not among the trusted ones, or unknown", () => {
  const one = caseOf("attacks", "ordered/1: lie-output, party 0");
  const args = laidOut(one, "trust");
  const key = join(FOLDER, "signer.pem");
  writeFileSync(key, signerOf(one.evidence));
  expect(object(run(...args, "--json"))["trusted"]).toEqual([null, null]);
  const ran = run(...args, "--trust", key, "--json");
  expect(ran.code).toBe(1);
  expect(object(ran)).toMatchObject({ trusted: [true, false], convicted: [{ trusted: true }] });
  const text = run(...args, "--trust", key).out;
  expect(text).toMatch(/Party A: .* You trust this signer\.\n/);
  expect(text).toMatch(/Party B: .* It is none of the signers whom you trust\.\n/);
  expect(run(...args).out).not.toContain("trust this signer");
  expect(run(...args, "--trust", join(FOLDER, "none.pem")).code).toBe(2);
});

/** A referee's directory with the entries of a log in the vectors, and the arguments for it. */
function sessionOf(name: string, folder: string): string[] {
  const entries = entriesOf(name);
  const directory = join(FOLDER, folder);
  mkdirSync(join(directory, "log", "0000"), { recursive: true });
  entries.forEach((bytes, i) => {
    writeFileSync(join(directory, "log", "0000", `${String(i).padStart(7, "0")}.bin`), bytes);
  });
  writeFileSync(join(directory, "game-000.evidence"), "no entry");
  const job = join(FOLDER, "job-of-sessions");
  mkdirSync(job, { recursive: true });
  for (const [file, place] of Object.entries(FILE.job)) {
    writeFileSync(join(job, file), bytesAt(place));
  }
  return [directory, "--job", job];
}

test.each([
  ["agreement", 0],
  ["both silent", 1],
  ["another query", 1],
  ["never opened", 2],
  ["a bit of a signature", 2],
  ["an arity of 1", 2],
])("the log of a session, %s: code %i", (name, code) => {
  const [directory = "", ...job] = sessionOf(name, `session of ${name}`);
  expect(run(directory, ...job).code).toBe(code);
});

test("a session in words and as facts, from the referee's directory or its entries alone", () => {
  const [directory = "", ...job] = sessionOf("a liar of three", "liar");
  const ran = run(directory, ...job);
  expect(ran.code).toBe(1);
  expect(ran.out).toMatch(/^One result is accepted, after a dispute\.\n/);
  expect(ran.out).toContain(`lost game 0: it ${actOf("5.6.4", "").did} (5.6.4)`);
  const facts = object(run(join(directory, "log"), ...job, "--json"));
  const liar = keyId("5fccc0049983d8a901e26c12a6feb43b7676516def3aa27ecd69f7efdb53286d");
  expect(facts).toMatchObject({
    outcome: "accepted",
    convicted: [liar],
    games: [{ game: 0, outcome: "convicted", convicted: [liar] }],
    finished: true,
    entries: 40,
  });
  expect(facts["parties"]).toContainEqual({ key_id: liar, state: "lost" });
});

test("a log without one of its entries is damaged there", () => {
  const [directory = "", ...job] = sessionOf("a liar of three", "gap");
  rmSync(join(directory, "log", "0000", "0000005.bin"));
  const ran = run(directory, ...job, "--json");
  expect(ran.code).toBe(2);
  expect(object(ran)["damage"]).toEqual({ index: 5, why: "damaged" });
});

test("of a log nothing but entries at their places is read, and no link", () => {
  const [directory = "", ...job] = sessionOf("agreement", "strangers");
  const log = join(directory, "log");
  writeFileSync(join(log, "0000", "next"), "x");
  writeFileSync(join(log, "0000", "0001000.bin"), "of another folder");
  mkdirSync(join(log, "other"));
  expect(run(directory, ...job).code).toBe(0);
  symlinkSync(join(log, "0000", "0000000.bin"), join(log, "0000", "0000900.bin"));
  expect(run(directory, ...job).code).toBe(2);
  expect(run(directory).code).toBe(3);
  expect(run(directory, ...job, "--trust", "x").code).toBe(3);
});

test("inside of a job no link is followed", () => {
  const [evidence = "", , folder = ""] = laidOut(caseOf("clauses", "agreement"), "link");
  const linked = join(FOLDER, "linked");
  mkdirSync(linked);
  symlinkSync(join(folder, "job.json"), join(linked, "job.json"));
  const ran = run(evidence, "--job", linked);
  expect(ran.code).toBe(2);
  expect(ran.err).toContain("not a regular file");
});

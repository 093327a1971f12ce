import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, expect, test } from "vitest";

import { OPENING, writeCarried } from "../../src/face/carried.ts";
import { caseOf, casesOf, type Case } from "../face/material.ts";

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
  expect(ran.out).toMatch(/^PARTY A SIGNED SOMETHING FALSE\n\nWhat happened\n/);
  expect(ran.out).toContain("too low by 0.146");
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

test("inside of a job no link is followed", () => {
  const [evidence = "", , folder = ""] = laidOut(caseOf("clauses", "agreement"), "link");
  const linked = join(FOLDER, "linked");
  mkdirSync(linked);
  symlinkSync(join(folder, "job.json"), join(linked, "job.json"));
  const ran = run(evidence, "--job", linked);
  expect(ran.code).toBe(2);
  expect(ran.err).toContain("not a regular file");
});

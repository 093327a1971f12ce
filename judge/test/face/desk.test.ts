import { describe, expect, test } from "vitest";

import { toHex } from "../../src/bytes.ts";
import { refuse } from "../../src/errors.ts";
import { jobOfPage, judgeAll, type Court, type Result } from "../../src/face/desk.ts";
import { whatIs, type Given } from "../../src/face/files.ts";
import { actOf } from "../../src/face/acts.ts";
import { NO_NAMES } from "../../src/face/names.ts";
import type { SessionOutcome } from "../../src/session/log.ts";
import { sha256 } from "../../src/sha256.ts";
import { bytesOfVectors } from "../vectors.ts";
import { caseOf, casesOf, judgedOf } from "./material.ts";

const { evidence, job, found } = caseOf("attacks", "ordered/1: lie-output, party 0");
const manifest = job.get("job.json") ?? new Uint8Array();
const program = job.get("program.txt") ?? new Uint8Array();
const other = caseOf("clauses", "agreement");
const digest = (bytes: Uint8Array): string => toHex(sha256(bytes));

const OUTCOME: SessionOutcome = {
  state: "ended",
  members: ["ab".repeat(32), "cd".repeat(32)],
  sides: [["ab".repeat(32)], ["cd".repeat(32)]],
  removed: { ["cd".repeat(32)]: "game 0: 5.6.3", ["ef".repeat(32)]: "unopened" },
  games: [["ab".repeat(32), "cd".repeat(32), 0, 2]],
  rounds: 1,
  result: [1, "12".repeat(32)],
  wrong: "",
  index: -1,
  clause: "",
};

/** What each was given, in words that the tests can look for. Digests are of manifests. */
const court = (outcome = OUTCOME): Court => ({
  judge(given, files) {
    if (found === undefined || given !== evidence) throw refuse("another evidence");
    return { ...judgedOf(found), jobDigest: digest(files.manifest) };
  },
  readLog: () => outcome,
  workOf: () => "training",
  digestOf: (files) => digest(files.manifest),
});

const text = (bytes: Uint8Array): Given => ({ kind: "program", bytes });
const proof: Given = { kind: "evidence", bytes: evidence };
const terms: Given = { kind: "manifest", bytes: manifest };
const page: Given = { kind: "page", carried: { evidence, job, names: new Map() } };
const judged = (given: readonly Given[], outcome = OUTCOME): Result => {
  const result = judgeAll(given, court(outcome));
  if (result.kind === "waiting") throw new Error(result.sentence);
  return result;
};
const wait = (given: readonly Given[]): string => {
  const result = judgeAll(given, court());
  if (result.kind !== "waiting") throw new Error("judged");
  return result.sentence;
};

test("what is missing is said", () => {
  expect(wait([])).toContain("Nothing");
  expect(wait([terms, text(program)])).toContain("Now add what is to be judged");
  expect(wait([proof])).toContain("Now add the job");
  expect(wait([proof, terms])).toContain("program.txt is missing");
});

test("evidence and the reader's job, in any order", () => {
  for (const given of [
    [proof, terms, text(program)],
    [text(program), terms, proof],
  ]) {
    const result = judged(given);
    expect(result.kind).toBe("verdict");
    expect(result.words(NO_NAMES).headline).toMatch(/^Party A signed .*, in step 4$/);
    expect(result.basis.short).toContain("with your own copy of the job");
    expect(result.keys.map(([label]) => label)).toEqual(["Party A", "Party B"]);
  }
});

test("a page's job is named as the page's, with its digest", () => {
  const result = judged([page]);
  expect(result.basis.short).toContain("the job that came with the page");
  expect(result.basis.full.join(" ")).toContain(digest(manifest));
  expect(result.basis.full.join(" ")).toContain("your own copy of the judge");
});

test("a job dropped beside a page is the one that counts", () => {
  const result = judged([page, terms]);
  expect(result.basis.short).toContain("with your own copy of the job");
  const foreign = other.job.get("job.json") ?? new Uint8Array();
  const foreignText = other.job.get("program.txt") ?? new Uint8Array();
  expect(wait([page, { kind: "manifest", bytes: foreign }])).toContain("missing");
  const strange = judged([page, { kind: "manifest", bytes: foreign }, text(foreignText)]);
  expect(strange.basis.full.join(" ")).toContain(digest(foreign));
});

test("the last evidence counts, and refusals pass through", () => {
  const last: Given = { kind: "evidence", bytes: other.evidence };
  expect(() => judgeAll([page, last], court())).toThrow("another evidence");
});

test("run commitments are claims", () => {
  const given = whatIs(new Uint8Array(bytesOfVectors("runs/logreg-run/commitment.json")));
  const alone = judged([given]).words(NO_NAMES);
  expect(alone.tone).toBe("claim");
  expect(alone.headline).toContain("compared with nothing");
  expect(alone.story).toHaveLength(1);
  const twice = judged([given, given, terms, text(program)]).words(NO_NAMES);
  expect(twice.headline).toBe("These signers claim the same result");
  expect(twice.story.join(" ")).toContain("about another job");
  if (given.kind !== "commitment") throw new Error("no commitment");
  const changed: Given = { ...given, commitment: { ...given.commitment, finalStep: 99 } };
  expect(judged([given, changed]).words(NO_NAMES).headline).toContain("different results");
});

test("a session's log in words, by its end", () => {
  const entry: Given = { kind: "entry", index: 0, bytes: evidence };
  const about = (change: Partial<SessionOutcome>) =>
    judged([entry, terms, text(program)], { ...OUTCOME, ...change }).words(NO_NAMES);
  const whole = about({});
  expect(whole.headline).toBe("One result is accepted, after a dispute");
  expect(whole.story.join(" ")).toContain(`lost game 0: it ${actOf("5.6.3", "").did}`);
  expect(whole.story.join(" ")).toContain("did not open what it had sealed in time");
  expect(about({ result: [3, ""] }).headline).toContain("compared with nothing");
  expect(about({ result: null, state: "playing" }).headline).toContain("has not ended");
  const wrong = about({ wrong: "convicted", index: 7, clause: "12.5" });
  expect(wrong.tone).toBe("convicted");
  expect(wrong.headline).toBe("The referee broke the rules");
  expect(wrong.story.join(" ")).toContain("Entry 7");
  expect(about({ wrong: "damaged", index: 3 }).headline).toBe("This log is not whole");
  expect(about({ wrong: "refused", index: 0 }).tone).toBe("undecided");
  expect(wait([entry])).toContain("this session's log");
});

test("parties of a session have names, and a referee's directory has evidence beside its log", () => {
  const entry: Given = { kind: "entry", index: 0, bytes: evidence };
  const result = judged([entry, terms, text(program), proof]);
  expect(result.kind).toBe("session");
  expect(result.keys.map(([label]) => label)).toEqual(["Party 1", "Party 2", "Party 3"]);
  const unnamed = result.words(NO_NAMES);
  expect(unnamed.story.join(" ")).toContain("Party 2 lost game 0");
  expect(unnamed.story.join(" ")).toContain("Party 3 did not open");
  const [, second] = result.keys;
  if (second === undefined) throw new Error("no key");
  const [, id] = second;
  expect(unnamed.parties[1]).toContain(id.slice(0, 12));
  const byReader = new Map([[id, "Bob\u202e"]]);
  const named = result.words({ byReader, byMaker: new Map() });
  expect(named.story.join(" ")).toContain("Bob\\u202e lost game 0");
  expect(named.parties[1]).toContain("Bob\\u202e (Party 2, by your name for it)");
});

describe("a page's job has each text of the job and no other file (PROTOCOL 8.6.1)", () => {
  const carrying = (files: ReadonlyMap<string, Uint8Array>): Given => ({
    kind: "page",
    carried: { evidence, job: files, names: new Map() },
  });
  const tooMany = carrying(new Map([...job, ["program-more.txt", program]]));
  const renamed = carrying(
    new Map([
      ["job.json", manifest],
      ["program-more.txt", program],
    ]),
  );
  const without = carrying(new Map([["job.json", manifest]]));

  test.each([
    ["a file too many", tooMany],
    ["a text of another name", renamed],
    ["a text is missing", without],
  ])("%s: refused", (_, given) => {
    expect(() => judgeAll([given], court())).toThrow("exactly the files of its job");
  });

  test("it counts for nothing where the reader has a job (8.6.4)", () => {
    expect(judged([tooMany, terms, text(program)]).kind).toBe("verdict");
  });

  test("the jobs of several programs in the vectors are whole", () => {
    for (const one of casesOf("format-two")) {
      const given = { evidence: one.evidence, job: one.job, names: new Map<string, string>() };
      expect(jobOfPage(given).files.programs).toEqual(
        new Map([...one.job].filter(([name]) => name !== "job.json")),
      );
    }
  });
});

import { expect, test } from "vitest";

import { actOf } from "../../src/face/acts.ts";
import { actAbout } from "../../src/face/answers.ts";
import { NO_NAMES } from "../../src/face/names.ts";
import { sessionWords } from "../../src/face/sessions.ts";
import { workOf, type Work } from "../../src/face/work.ts";
import { wordsOf } from "../../src/face/words.ts";
import type { SessionOutcome } from "../../src/session/log.ts";
import { casesOf, judgedOf } from "./material.ts";

const WORKS: readonly Work[] = ["answer", "encoding"];
const TRAINING = /train|learn|\bstep\b|final model|example|\brecord|\bdata\b|\bloss/;
/** These a job of one step cannot meet, which has no stop rule and no log; and 3.2, which counts. */
const OF_TRAINING = /^(?:3\.2|4\.(?:8|9|10|11)|6\.(?:10|11|13|14))$/;

const slotsOf = (...names: string[]): Parameters<typeof workOf>[0]["slots"] =>
  new Map(names.map((name) => [name, { dtype: "f32", shape: [] }]));

test("a job is told from others by its step and the slots that it fills", () => {
  const answer = ["tokens", "logprobs", "salt"].map((name) => `buffer.answer.${name}`);
  const encoding = ["values", "salt"].map((name) => `buffer.answer.${name}`);
  const more = ["param.x", "chain.loss", "chain.log"];
  expect(workOf({ steps: 1, slots: slotsOf(...answer, ...more) })).toBe("answer");
  expect(workOf({ steps: 1, slots: slotsOf(...encoding, ...more) })).toBe("encoding");
  expect(workOf({ steps: 2, slots: slotsOf(...answer, ...more) })).toBe("training");
  expect(workOf({ steps: 1, slots: slotsOf(...answer.slice(1), ...more) })).toBe("training");
  expect(workOf({ steps: 1, slots: slotsOf(...answer, ...encoding) })).toBe("training");
  expect(workOf({ steps: 1, slots: slotsOf(...more) })).toBe("training");
});

test.each(WORKS)("no word about an %s is about training", (work) => {
  const bundles = ["attacks", "attacks-exact", "clauses", "operators-ordered", "sums"];
  for (const { found, name } of bundles.flatMap(casesOf)) {
    if (found === undefined || found.undecided) continue;
    if (found.convicted.some(({ clause }) => OF_TRAINING.test(clause))) continue;
    const words = wordsOf({ ...judgedOf(found), steps: 1, work }, NO_NAMES);
    const said = [words.headline, ...words.story, ...words.meaning, ...words.proves];
    expect(said.join("\n"), name).not.toMatch(TRAINING);
    expect(words.figures.map(({ label }) => label).join("\n"), name).not.toMatch(TRAINING);
    for (const sentence of [...words.story, ...words.meaning]) {
      expect(sentence, name).toMatch(/^[A-Z].*\.$/);
    }
    if (work === "encoding")
      expect(said.join("\n"), name).not.toMatch(/token|answer to|its answer/);
  }
});

test("a clause that is not about the work means what it means", () => {
  for (const work of WORKS) {
    expect(actAbout(work, "6.5", "3").did).toBe(actOf("6.5", "3").did);
    expect(actAbout(work, "none", "")).toEqual(actOf("none", ""));
    expect(actAbout(work, "5.6.3", "2c")).not.toEqual(actOf("5.6.3", "2c"));
    expect(actAbout(work, "5.5", "1").kind).toBe("step");
    expect(actAbout(work, "5.5", "")).toEqual(actOf("5.5", ""));
  }
  expect(actAbout("training", "5.6.3", "2c")).toEqual(actOf("5.6.3", "2c"));
  expect(actAbout("encoding", "5.6.2", "2b")).toEqual(actAbout("answer", "5.6.2", "2b"));
});

test("the disputed field is a part of the text and its settings", () => {
  const found = casesOf("attacks").find(({ found }) => found?.clause === "5.6.3")?.found;
  if (found === undefined) throw new Error("no case");
  const disputed = { what: "record", field: "text", record: 0 } as const;
  const words = wordsOf({ ...judgedOf(found), steps: 1, work: "answer", disputed }, NO_NAMES);
  expect(words.story.join(" ")).toContain(
    "a false value for “text”, which is a part of what the job",
  );
  expect(words.figures.at(-1)?.label).toBe("The job says");
});

test("a session about an answer says so of its games", () => {
  const key = "ab".repeat(32);
  const outcome: SessionOutcome = {
    state: "ended",
    members: [],
    sides: [],
    removed: { [key]: "game 0: 5.6.3" },
    games: [],
    rounds: 1,
    result: null,
    wrong: "",
    index: -1,
    clause: "",
  };
  const said = (work: Work): string => sessionWords(outcome, 1, NO_NAMES, work).story.join(" ");
  expect(said("answer")).toContain("signed an answer to another text");
  expect(said("encoding")).toContain("signed the result of another text");
  expect(said("training")).toContain("signed other data than the job's");
});

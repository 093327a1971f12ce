import { expect, test } from "vitest";

import { NO_NAMES, visible } from "../../src/face/names.ts";
import { difference, numberIn } from "../../src/face/numbers.ts";
import { inWords } from "../../src/face/operations.ts";
import { convictionSentence, wordsOf, type Words } from "../../src/face/words.ts";
import { caseOf, casesOf, judgedOf } from "./material.ts";

const BUNDLES = [
  "attacks",
  "attacks-exact",
  "clauses",
  "clauses-later",
  "logs",
  "logs-later",
  "sums",
  "format-two",
  "parts-published",
  "operators-ordered",
  "operators-published",
  "operators-whole",
];

function said(words: Words): string {
  const figures = words.figures.map(({ label, text, note }) => `${label} ${text} ${note}`);
  const lists = [words.parties, words.story, figures, words.meaning, words.proves, words.provesNot];
  return [words.headline, ...lists.flat()].join("\n");
}

const wordsAbout = (bundle: string, name: string): Words => {
  const { found } = caseOf(bundle, name);
  if (found === undefined) throw new Error("refused");
  return wordsOf(judgedOf(found), NO_NAMES);
};

test.each(BUNDLES)("every verdict of %s is said in whole sentences", (bundle) => {
  for (const { found, name } of casesOf(bundle)) {
    if (found === undefined) continue;
    const words = wordsOf(judgedOf(found), NO_NAMES);
    expect(words.tone === "convicted", name).toBe(found.convicted.length > 0);
    expect(said(words), name).not.toMatch(/undefined|null|NaN|\bPROTOCOL\b|[0-9a-f]{16}\b.*signed/);
    for (const sentence of [
      ...words.story,
      ...words.meaning,
      ...words.proves,
      ...words.provesNot,
    ]) {
      expect(sentence, name).toMatch(/^[A-Z].*\.$/);
    }
    for (const { party } of found.convicted) {
      expect(words.story.join(" "), name).toContain(`Party ${party}`);
    }
    expect(new Map(words.details).get("Run root of A"), name).toBe(found.run_roots[0]);
  }
});

test("every clause that convicts in the vectors has a sentence of its own", () => {
  const general = convictionSentence({ party: "A", clause: "none", case: "" });
  const same = new Set(["3.3", "4.10", "5.4", "5.5", "5.6.6", "6.1", "6.5", "6.14"]);
  for (const bundle of BUNDLES) {
    for (const { found } of casesOf(bundle)) {
      for (const one of found?.convicted ?? []) {
        if (!same.has(one.clause)) expect(convictionSentence(one), one.clause).not.toBe(general);
      }
    }
  }
});

test("a false number: who, where, and by how much", () => {
  const words = wordsAbout("attacks", "ordered/1: lie-output, party 0");
  expect(words.headline).toBe("Party A signed something false");
  expect(words.story.join(" ")).toContain(
    "After 4 of 20 steps the models of both parties were still the same. In step 4 their runs part",
  );
  expect(words.story.join(" ")).toContain("too low by 0.146 (about 2 times the right one)");
  expect(words.figures.map(({ text }) => text)).toEqual([
    "-0.29162434",
    "-0.14581217",
    "-0.14581217",
  ]);
  expect(words.figures.map(({ note }) => note.split(":")[0])).toEqual([
    "false",
    "this is right",
    "computed here",
  ]);
});

test("false data are the job's data, and no calculation", () => {
  const words = wordsAbout("attacks", "ordered/1: backdoor-label-flip, party 0");
  expect(words.story.join(" ")).toContain(
    "Party A says 1 where the job's data have 4. That is too low by 3.",
  );
  expect(words.figures[2]?.label).toBe("The job's data have");
});

test("fingerprints are never said as numbers", () => {
  const words = wordsAbout("attacks", "ordered/1: lie-input-digest, party 0");
  expect(words.story.join(" ")).not.toContain("0707070707070707");
  expect(words.figures[0]?.note).toContain("fingerprint");
});

test("silence is no lie, and rests on a referee", () => {
  const words = wordsAbout("attacks", "ordered/1: silent, party 1");
  expect(words.headline).toBe("Party B did not answer");
  expect(said(words)).toContain("It does not show a lie.");
  expect(said(words)).not.toContain("signed something false");
});

test("an agreement and an undecided game convict nobody", () => {
  expect(wordsAbout("clauses", "agreement").headline).toBe("Both runs are the same");
  const undecided = casesOf("logs").find(({ found }) => found?.undecided === true)?.found;
  if (undecided === undefined) throw new Error("no such case");
  expect(wordsOf(judgedOf(undecided), NO_NAMES).headline).toContain("nobody is shown to be wrong");
});

test("the reader's names are used; a page's names are its maker's", () => {
  const { found } = caseOf("attacks", "ordered/1: lie-output, party 0");
  if (found === undefined) throw new Error("refused");
  const byReader = new Map([
    [found.signers[0], " Alice "],
    [found.signers[1], "  "],
  ]);
  const byMaker = new Map([
    [found.signers[0], "Honest Ltd"],
    [found.signers[1], "B\u202eod"],
  ]);
  const words = wordsOf(judgedOf(found), { byReader, byMaker });
  expect(words.headline).toBe("Alice signed something false");
  expect(words.parties[0]).toContain("Alice (party A, by your name for it)");
  expect(words.parties[0]).toContain("The maker of this page calls it “Honest Ltd”, unchecked.");
  expect(words.parties[1]).toContain("B\\u202eod");
  expect([words.headline, ...words.story].join(" ")).not.toContain("Honest Ltd");
});

test("what draws nothing is written out", () => {
  expect(visible("a\u0000b\u200bc\u{e0041}d\u2800é")).toBe("a\\x00b\\u200bc\\U000e0041d\\u2800é");
});

test("differences", () => {
  expect(numberIn("1.5 (0x3fc00000)")).toBe(1.5);
  expect(numberIn("4.6 within 2.38e-12")).toBe(4.6);
  expect(numberIn("3bd0914e40948fc1")).toBeUndefined();
  expect(numberIn("0707070707070707")).toBeUndefined();
  expect(numberIn("")).toBeUndefined();
  expect(difference("4", "1")).toBe("too high by 3");
  expect(difference("4.0 (0x1)", "1.0 (0x2)")).toBe("too high by 3 (about 4 times the right one)");
  expect(difference("-1.1328125 (0x1)", "-1.1302235 (0x2)")).toBe(
    "too low by 0.00259 (0.229 % off)",
  );
  expect(difference("2.5", "0.0")).toBe("too high by 2.5");
  expect(difference("-2.0", "2.0")).toBe("too low by 4 (the right size with the wrong sign)");
  expect(difference("nan (0x7fc00000)", "1.0 (0x3f800000)")).toBe("not an ordinary number at all");
  expect(difference("True", "False")).toBeUndefined();
});

test("operators have everyday words", () => {
  expect(inWords("aten.mm")).toBe("a product of two tables of numbers");
  expect(inWords("tallystick.adam_step")).toBe("the update of the model's numbers");
  expect(inWords("aten.tanh")).toBe("a function of single numbers");
});

import { expect, test } from "vitest";

import { actOf } from "../../src/face/acts.ts";
import type { Found } from "../../src/face/judged.ts";
import { NO_NAMES, visible } from "../../src/face/names.ts";
import { difference, numberIn } from "../../src/face/numbers.ts";
import { inWords } from "../../src/face/operations.ts";
import { nth } from "../../src/face/places.ts";
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
    expect(said(words), name).not.toMatch(
      /undefined|null|NaN|\bPROTOCOL\b|(?<![.\d])\b(?=\d*[a-f])[0-9a-f]{16}\b.*signed/,
    );
    for (const sentence of [
      ...words.story,
      ...words.meaning,
      ...words.proves,
      ...words.provesNot,
    ]) {
      expect(sentence, name).toMatch(/^[A-Z].*\.$/);
    }
    for (const { party } of found.convicted) {
      expect([words.headline, ...words.story].join(" "), name).toContain(`Party ${party}`);
    }
    expect(new Map(words.details).get("Run root of A"), name).toBe(found.run_roots[0]);
  }
});

test("every clause that convicts in the vectors has a sentence of its own", () => {
  const general = convictionSentence({ party: "A", clause: "none", case: "" });
  for (const bundle of BUNDLES) {
    for (const { found } of casesOf(bundle)) {
      for (const one of found?.convicted ?? []) {
        expect(convictionSentence(one), one.clause).not.toBe(general);
      }
    }
  }
});

test("a false number: who, where, and by how much", () => {
  const words = wordsAbout("attacks", "ordered/1: lie-output, party 0");
  expect(words.headline).toBe(`Party A ${actOf("6.5", "3").did}, in step 4`);
  expect(words.story[0]).toContain("The run of Party A is not accepted.");
  expect(words.story[0]).toContain("Party B was not shown wrong here");
  expect(words.story[1]).toContain("before the fifth of 20 steps, called step 4");
  expect(new Map(words.details).get("Step, from 0")).toBe("4");
  expect(words.story.join(" ")).toContain("lower by 0.146");
  expect(words.figures.map(({ text }) => text)).toEqual([
    "-0.29162434",
    "-0.14581217",
    "-0.14581217",
  ]);
  const [a, b, judge] = words.figures;
  expect(a?.note).toMatch(/^false: lower by/);
  // What was not shown wrong is not said to be right.
  expect(b?.note).toBe("as the judge computed");
  expect(judge).toMatchObject({ label: "The judge computed", note: "" });
});

const FOUND = caseOf("attacks", "ordered/1: lie-output, party 0").found;

/** The words about a verdict that differs from the one above in these members. */
function changed(change: Partial<Found>): Words {
  if (FOUND === undefined) throw new Error("refused");
  return wordsOf(judgedOf({ ...FOUND, ...change }), NO_NAMES);
}

test.each([
  ["5.6.3", "2c", { step: 1 }, ", in step 1"],
  ["5.6.1", "2a", { step: 1234 }, ", in step 1,234"],
  ["4.9", "0", { step: 7 }, ", after step 7"],
  ["3.4", "0", { step: 7 }, ""],
  ["5.5", "1", { step: 2 }, ", in step 2"],
  ["2.8", "", { step: null, interval: [4, 8] }, ", when asked about steps 4 to 7"],
  ["2.8", "", { step: null, interval: [4, 5] }, ", when asked about step 4"],
  ["6.1", "", { step: 3 }, ", when asked about step 3"],
] as const)("the heading of clause %s, case %s", (clause, of, place, where) => {
  const [one] = FOUND?.convicted ?? [];
  if (one === undefined) throw new Error("nobody is convicted");
  const words = changed({ ...place, convicted: [{ ...one, clause, case: of }] });
  expect(words.headline).toBe(`Party A ${actOf(clause, of).did}${where}`);
});

test("what a party did is what it signed, and no more: a signature does not show why", () => {
  for (const bundle of BUNDLES) {
    for (const { found } of casesOf(bundle)) {
      for (const { clause, case: of } of found?.convicted ?? []) {
        const { did, kind } = actOf(clause, of);
        if (kind === "silence") continue;
        expect(did).toMatch(/^(?:signed|gave|showed) /);
      }
    }
  }
});

test("how far the runs are equal, with steps that count from 0", () => {
  const story = (change: Partial<Found>): string => changed(change).story.join(" ");
  expect(story({ step: 1 })).toContain("before the second of 20 steps, called step 1");
  expect(story({ step: 0 })).toContain("from the first of 20 steps, called step 0, on");
  expect(story({ step: 3, case: "0" })).toContain("up to the fourth of 20 steps, called step 3");
  expect(story({ step: null, interval: [1, 5] })).toContain(
    "equal after 1 step, and differ after 5 steps.",
  );
  expect(story({ step: null, interval: null })).toContain("No single step");
  expect([4, 9, 10, 11, 20, 21, 110, 1111].map(nth)).toEqual([
    "fifth",
    "tenth",
    "11th",
    "12th",
    "21st",
    "22nd",
    "111th",
    "1,112th",
  ]);
});

test("two convictions: one sentence of both, or one of each", () => {
  const [one] = FOUND?.convicted ?? [];
  if (one === undefined) throw new Error("nobody is convicted");
  const both = (clause: string): Words =>
    changed({ accepted_party: null, convicted: [one, { ...one, party: "B", clause }] });
  const did = (clause: string): string => actOf(clause, one.case).did;
  expect(both(one.clause).headline).toBe(
    `Party A and Party B both ${did(one.clause)}, in step 4; no run is accepted`,
  );
  expect(both("5.6.3").headline).toContain("no run is accepted");
  expect(both("5.6.3").story.slice(0, 3)).toEqual([
    `Party A ${did(one.clause)}, in step 4.`,
    `Party B ${did("5.6.3")}, in step 4.`,
    "No run is accepted.",
  ]);
});

test("a false answer does not show where the training went wrong", () => {
  const all = BUNDLES.flatMap((bundle) => casesOf(bundle).flatMap(({ found }) => found ?? []));
  const shown = (clause: string): boolean => {
    const found = all.find(({ convicted }) => convicted[0]?.clause === clause);
    if (found === undefined) throw new Error(`no case of ${clause}`);
    return wordsOf(judgedOf(found), NO_NAMES).provesNot.join(" ").includes("if it did");
  };
  expect(["2.7", "5.4", "6.14"].map(shown)).toEqual([true, true, true]);
  expect(["5.6.3", "6.5", "3.4"].map(shown)).toEqual([false, false, false]);
});

test("false data are the job's data, and no calculation", () => {
  const words = wordsAbout("attacks", "ordered/1: backdoor-label-flip, party 0");
  expect(words.story.join(" ")).toMatch(/signed 1\. The job's data say 4\. .* lower by 3\./);
  expect(words.figures[2]).toMatchObject({ label: "The job's data say", text: "4" });
});

test("fingerprints are never said as numbers", () => {
  const words = wordsAbout("attacks", "ordered/1: lie-input-digest, party 0");
  expect(words.story.join(" ")).not.toContain("0707070707070707");
  expect(words.figures[0]?.note).toContain("fingerprint");
});

test("silence is no lie, and rests on a referee", () => {
  const words = wordsAbout("attacks", "ordered/1: silent, party 1");
  expect(words.headline).toMatch(/^A referee says that Party B did not answer when asked about /);
  expect(words.story[0]).toContain("you trust that referee");
  expect(words.provesNot.join(" ")).toContain("That anybody lied.");
  expect(said(words)).not.toMatch(/false number|signed a fals/);
});

test("an agreement and an undecided game convict nobody", () => {
  expect(wordsAbout("clauses", "agreement").headline).toBe(
    "The parties agree: both have signed the same run",
  );
  const { found: agreed } = caseOf("clauses", "agreement");
  if (agreed === undefined) throw new Error("no such case");
  const [A, B] = [agreed.signers[0], "0123456789abcdef".repeat(4)];
  const said = (signers: readonly [string, string]): string =>
    wordsOf(judgedOf({ ...agreed, signers }), NO_NAMES).provesNot.join(" ");
  expect(said([A, A])).toContain("both parties have one and the same key");
  expect(said([A, B])).not.toContain("the same key");
  const undecided = casesOf("logs").find(({ found }) => found?.undecided === true)?.found;
  if (undecided === undefined) throw new Error("no such case");
  expect(wordsOf(judgedOf(undecided), NO_NAMES).headline).toContain("neither party is shown wrong");
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
  expect(words.headline).toMatch(/^Alice signed .*, in step 4$/);
  expect(words.parties[0]).toContain("Alice (Party A, by your name for it)");
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
  expect(difference("4", "1")).toBe("higher by 3");
  expect(difference("4.0 (0x1)", "1.0 (0x2)")).toBe("higher by 3 (about 4 times the right one)");
  expect(difference("-1.1328125 (0x1)", "-1.1302235 (0x2)")).toBe("lower by 0.00259 (0.229 %)");
  expect(difference("-14011598714224989", "-14011598714224990")).toBe("higher by 1");
  expect(difference("7", "7")).toBeUndefined();
  // Of two negative numbers the lower one has the greater factor.
  expect(difference("-4.0", "-1.0")).toBe("lower by 3");
  expect(difference("2.5", "0.0")).toBe("higher by 2.5");
  expect(difference("-2.0", "2.0")).toBe("lower by 4 (the right size with the wrong sign)");
  expect(difference("nan (0x7fc00000)", "1.0 (0x3f800000)")).toBe("not an ordinary number at all");
  expect(difference("True", "False")).toBeUndefined();
});

test("operators have everyday words", () => {
  expect(inWords("aten.mm")).toBe("a product of two tables of numbers");
  expect(inWords("tallystick.adam_step")).toBe("the update of the model's numbers");
  expect(inWords("aten.tanh")).toBe("a function of single numbers");
});

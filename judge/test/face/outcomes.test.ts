import { expect, test } from "vitest";

import { keyId } from "../../src/face/names.ts";
import { sessionCode, sessionFacts } from "../../src/face/outcomes.ts";
import { FILE } from "../session/golden.ts";

const DIGEST = "d".repeat(64);

const CODES: Readonly<Record<string, 0 | 1 | 2>> = {
  agreement: 0,
  "a liar of three": 1,
  "three lies": 1,
  "a sybil throws the honest claims game": 1,
  "both silent": 1,
  "excluded by two seals": 1,
  "excluded by a false opening": 1,
  "excluded by two openings": 1,
  "a restart in every state": 1,
  "never opened": 2,
  "no party": 2,
  "an open session": 1,
  "two answers to one query": 1,
  "late in a game": 1,
  "a forfeit at its deadline": 1,
  "another verdict": 1,
  "another query": 1,
  "a question left out": 1,
  "a seal after the closing": 1,
  "an answer twice": 1,
  "a time before the one before": 1,
  "a result before its time": 1,
  "an entry after the result": 1,
  "no such kind": 1,
  "taken out of the chain": 2,
  "mixed with another log": 2,
  "a bit of a signature": 2,
  "an entry cut off at the end": 2,
  "an arity of 1": 2,
};

test("every log of the vectors has a code here", () => {
  expect(Object.keys(CODES).sort()).toEqual(FILE.logs.map(({ name }) => name).sort());
});

test.each(FILE.logs)("$name: the code, and what was wrong", ({ name, entries, outcome }) => {
  expect(sessionCode(outcome)).toBe(CODES[name]);
  const { wrong, index } = outcome;
  const isDamaged = wrong === "damaged" || wrong === "refused";
  expect(sessionFacts(outcome, entries.length, DIGEST)).toMatchObject({
    kind: "session",
    job_digest: DIGEST,
    state: outcome.state,
    rounds: outcome.rounds,
    entries: entries.length,
    deviation: wrong === "convicted" ? { index, clause: "12.5" } : null,
    damage: isDamaged ? { index, why: wrong } : null,
  });
});

const factsOf = (name: string): object => {
  const log = FILE.logs.find((one) => one.name === name);
  if (log === undefined) throw new Error(`no log ${name}`);
  return sessionFacts(log.outcome, log.entries.length, DIGEST);
};

test("a lost game, an exclusion, and a party that has not opened", () => {
  const liar = keyId("5fccc0049983d8a901e26c12a6feb43b7676516def3aa27ecd69f7efdb53286d");
  const honest = keyId("1262bc6d5408a3c4e025aa0c15e64f69197cdb38911be5ad344a949779df3da6");
  expect(factsOf("a liar of three")).toMatchObject({
    outcome: "accepted",
    accepted_commitment: "c0bdefdb3310ef71f1ae10960cf36ca9696f3c6a911e89fbabffaf711b463378",
    convicted: [liar],
    games: [{ game: 0, parties: [honest, liar], outcome: "convicted", convicted: [liar] }],
  });
  expect(factsOf("excluded by two seals")).toMatchObject({
    outcome: "one party alone",
    accepted_commitment: null,
    convicted: [liar],
  });
  expect(factsOf("never opened")).toMatchObject({ outcome: "one party alone", convicted: [] });
  expect(JSON.stringify(factsOf("never opened"))).toContain(
    `{"key_id":"${liar}","state":"never opened"}`,
  );
});

/** Logs without games: who is a party to a session, and when (PROTOCOL 10.2, 10.3, 12.4, 12.5). */

import { describe, expect, test } from "vitest";

import { concatBytes, toHex } from "../../src/bytes.ts";
import type { Terms } from "../../src/job/terms.ts";
import { writeEntry, type Entry } from "../../src/session/entries.ts";
import { equivocates, readSession } from "../../src/session/log.ts";
import type { Rules } from "../../src/session/rules.ts";
import { ENTRY_TYPE } from "../../src/session/signed.ts";
import { sha256 } from "../../src/sha256.ts";
import { ANN, BEN, CAT, envelopeOf, hash, Log, REFEREE, RULES } from "./builder.ts";
import { type Signer, TERMS } from "./golden.ts";

const read = (log: Log): ReturnType<typeof readSession> => readSession(log.entries, TERMS);
const hex = (signer: Signer): string => toHex(signer.key.raw);

/** The log's last entry convicts the referee. */
function expectConvicted(log: Log): void {
  const { wrong, index, clause } = read(log);
  expect([wrong, index, clause]).toEqual(["convicted", log.entries.length - 1, "12.5"]);
}

/** Nothing is wrong with the log. */
function expectGood(log: Log): ReturnType<typeof readSession> {
  const outcome = read(log);
  expect([outcome.wrong, outcome.index]).toEqual(["", -1]);
  return outcome;
}

/** A sealing that two providers have sealed in, and that the referee has closed. */
const sealed = (): Log => new Log().seal(ANN, 1).seal(BEN, 2).say({ kind: "sealed" }, 1001);

describe("seals (PROTOCOL 10.2.1, 10.2.3)", () => {
  test("what has no effect is not logged", () => {
    expectConvicted(new Log().seal(REFEREE, 1));
    expectConvicted(new Log().seal(ANN, 1).seal(ANN, 2));
    expectConvicted(new Log().seal(ANN, 1).seal(BEN, 2).seal(CAT, 3));
    expectConvicted(new Log().seal(ANN, 1, 7, hash(5), hash(9)));
    expectConvicted(new Log({ ...RULES, keys: [ANN.key] }).seal(BEN, 1));
    expectConvicted(new Log().say({ kind: "seal", message: hash(1) }, 1));
    expectConvicted(sealed().seal(ANN, 1002, 8));
  });

  test("a second seal excludes its key, which keeps its place", () => {
    const log = (): Log => new Log().seal(ANN, 1).seal(ANN, 2, 8).seal(BEN, 3);
    expect(expectGood(log()).removed).toEqual({ [hex(ANN)]: "two seals" });
    expectConvicted(log().seal(ANN, 4, 9));
    expectConvicted(log().seal(CAT, 4));
    expectConvicted(log().say({ kind: "sealed" }, 1001).open(ANN, 1002));
  });

  test("the closing: after the deadline, or when all keys of a list have sealed", () => {
    expectConvicted(new Log().say({ kind: "sealed" }, 1000));
    expectConvicted(new Log().seal(ANN, 1001));
    expect(expectGood(new Log().seal(ANN, 1000)).state).toBe("sealing");
    const all: Rules = { ...RULES, keys: [ANN.key, BEN.key] };
    const both = (): Log => new Log(all).seal(ANN, 1).seal(BEN, 2);
    expect(expectGood(both().say({ kind: "sealed" }, 2)).state).toBe("opening");
    expectGood(both().say({ kind: "resumed" }, 900).say({ kind: "sealed" }, 900));
    expectGood(both().say({ kind: "sealed" }, 5000));
    expectConvicted(both().seal(ANN, 3, 8));
    expectConvicted(new Log(all).seal(ANN, 1).say({ kind: "sealed" }, 2));
  });
});

describe("openings (PROTOCOL 10.3, 10.3.1)", () => {
  test("what has no effect is not logged", () => {
    expectConvicted(new Log().seal(ANN, 1).open(ANN, 2));
    expectConvicted(sealed().open(CAT, 1002));
    expectConvicted(sealed().open(ANN, 1002).open(ANN, 1003));
    expectConvicted(sealed().open(ANN, 1002, 8).open(ANN, 1003));
    expectConvicted(sealed().open(ANN, 1002).say({ kind: "opened" }, 1003));
    expectConvicted(sealed().open(ANN, 2002));
    expectConvicted(sealed().open(ANN, 1002, 7, envelopeOf(ANN, 7), hash(9)));
  });

  test.each([
    ["another claim than the sealed one", envelopeOf(ANN, 8)],
    ["another key's commitment", envelopeOf(BEN, 7)],
    ["another job's commitment", envelopeOf(ANN, 7, hash(4))],
    ["no commitment", hash(7)],
  ])("%s excludes the key", (_, commitment) => {
    const log = sealed().open(ANN, 1002, 7, commitment).open(BEN, 1003);
    log.say({ kind: "opened" }, 1003);
    const outcome = expectGood(log);
    expect(outcome.removed).toEqual({ [hex(ANN)]: "false opening" });
    expect(outcome.members).toEqual([hex(BEN)]);
  });

  test.each([
    ["another key's commitment", envelopeOf(BEN, 7)],
    ["another job's commitment", envelopeOf(ANN, 7, hash(4))],
    ["no commitment", hash(7)],
  ])("%s excludes the key that has sealed it", (_, commitment) => {
    const log = new Log();
    log.seal(ANN, 1, 7, hash(5), log.session, commitment).say({ kind: "sealed" }, 1001);
    log.open(ANN, 1002, 7, commitment).say({ kind: "opened" }, 1002);
    expect(expectGood(log).removed).toEqual({ [hex(ANN)]: "false opening" });
  });

  test("the result follows, and nothing else does", () => {
    const opened = (): Log =>
      sealed().open(ANN, 1002).open(BEN, 1003).say({ kind: "opened" }, 1003);
    const accepted = sha256(envelopeOf(ANN, 7));
    const log = opened().say({ kind: "result", outcome: 2, accepted }, 1003);
    expect(expectGood(log).result).toEqual([2, toHex(accepted)]);
    expectConvicted(opened().say({ kind: "result", outcome: 1, accepted }, 1003));
    expectConvicted(opened().say({ kind: "result", outcome: 2, accepted: hash(0) }, 1003));
    expectConvicted(opened().say({ kind: "opened" }, 1003));
    expectConvicted(log.say({ kind: "resumed" }, 1004));
  });
});

describe("times (PROTOCOL 11.1, 11.5.2, 12.5)", () => {
  test("times do not decrease", () => {
    expectConvicted(new Log(RULES, 2).seal(ANN, 1));
    expectConvicted(new Log(RULES, 2).say({ kind: "resumed" }, 1));
  });

  test("a return moves the deadline that is open", () => {
    const late = (): Log => new Log().seal(ANN, 500).say({ kind: "resumed" }, 2000);
    expectConvicted(late().say({ kind: "sealed" }, 2500));
    expectGood(late().seal(BEN, 2500).say({ kind: "sealed" }, 2501));
    const opening = (): Log => sealed().say({ kind: "resumed" }, 1501);
    expectConvicted(opening().say({ kind: "opened" }, 2501));
    expect(expectGood(opening().say({ kind: "opened" }, 2502)).removed).toEqual({
      [hex(ANN)]: "unopened",
      [hex(BEN)]: "unopened",
    });
  });
});

describe("entry 0 (PROTOCOL 10.1, 10.1.1, 10.1.2, 11.2)", () => {
  const refused = (rules: Partial<Rules>, terms: Terms = TERMS): void => {
    const { wrong, index, state } = readSession(new Log({ ...RULES, ...rules }).entries, terms);
    expect([wrong, index, state]).toEqual(["refused", 0, "none"]);
  };
  const MOST = 2n ** 40n;

  test("rules that are not allowed", () => {
    refused({ jobDigest: hash(6) });
    for (const arity of [0, 1, 257]) refused({ arity });
    for (const mostParties of [0, 1, 65]) refused({ mostParties });
    refused({ sealing: 2n ** 53n });
    refused({ opening: MOST + 1n });
    refused({ extension: MOST + 1n });
    refused({ budget: MOST, step: 1n, steps: 1n });
    refused({ step: 2n ** 21n, steps: 2n ** 20n });
    refused({ keys: [BEN.key, ANN.key] });
    refused({ keys: [ANN.key, ANN.key] });
    refused({ keys: [REFEREE.key] });
    refused({ mostParties: 3 }, { ...TERMS, logs: "bounded" });
  });

  test("the greatest numbers that are", () => {
    for (const rules of [
      { arity: 256, mostParties: 64, sealing: 2n ** 53n - 1n, keys: [ANN.key, BEN.key] },
      { opening: MOST, extension: MOST, budget: 0n, step: 2n ** 20n, steps: 2n ** 20n },
      { budget: MOST, step: 0n, steps: MOST, arity: 2 },
    ]) {
      expectGood(new Log({ ...RULES, ...rules }));
    }
    expect(readSession(new Log().entries, { ...TERMS, logs: "bounded" }).state).toBe("sealing");
  });

  test("an entry 0 that another key has signed, or that is not the first one", () => {
    const other = new Log({ ...RULES, referee: ANN.key });
    expect(read(other).wrong).toBe("refused");
    const [, second] = new Log().seal(ANN, 1).entries;
    expect(readSession(second ? [second] : [], TERMS).wrong).toBe("refused");
    expectConvicted(new Log().say({ kind: "session", rules: RULES }, 1));
    const begins = { index: 0, previous: hash(0), time: 0n } as const;
    const session = { kind: "session", rules: RULES } as const;
    const wrong = (entry: Entry): string =>
      readSession([REFEREE.signed(ENTRY_TYPE, writeEntry(entry))], TERMS).wrong;
    expect(wrong({ ...begins, said: session })).toBe("");
    expect(wrong({ ...begins, index: 1, said: session })).toBe("refused");
    expect(wrong({ ...begins, previous: hash(1), said: session })).toBe("refused");
    expect(wrong({ ...begins, said: { kind: "resumed" } })).toBe("refused");
  });
});

describe("what is no entry (PROTOCOL 12.3.1, 12.5.3)", () => {
  test("no entries, and entries that are not written yet", () => {
    const { entries } = new Log();
    expect(readSession([], TERMS)).toMatchObject({ state: "none", wrong: "", index: -1 });
    const [first = hash(0)] = entries;
    const cut = readSession([first.subarray(0, -1)], TERMS);
    expect(cut).toMatchObject({ state: "none", wrong: "", index: -1 });
  });

  test("signed bytes of no layout convict; what is not linked or not signed does not", () => {
    expectConvicted(new Log().sign(hash(1)));
    expectConvicted(new Log().sign(new Uint8Array()));
    const { last } = new Log();
    const second: Entry = { index: 1, previous: last, time: 1n, said: { kind: "resumed" } };
    const entry = writeEntry(second);
    expectGood(new Log().sign(entry));
    expectConvicted(new Log().sign(concatBytes(entry, Uint8Array.of(0))));
    const [, linked = hash(0)] = new Log().seal(ANN, 1).entries;
    const log = new Log({ ...RULES, nonce: hash(2) });
    expect(readSession([...log.entries, linked], TERMS)).toMatchObject({
      state: "sealing",
      wrong: "damaged",
      index: 1,
      clause: "",
    });
    const [first = hash(0)] = new Log().entries;
    expect(readSession([first, first], TERMS)).toMatchObject({ wrong: "damaged", index: 1 });
    const later = REFEREE.signed(ENTRY_TYPE, writeEntry({ ...second, index: 2 }));
    expect(readSession([first, later], TERMS)).toMatchObject({ wrong: "damaged", index: 1 });
    // Only the last entry can be one that is not written yet.
    const cut = linked.subarray(0, -1);
    expect(readSession([first, cut, linked], TERMS)).toMatchObject({ wrong: "damaged", index: 1 });
    const unsigned = Uint8Array.from(linked);
    unsigned[unsigned.length - 1] = (unsigned.at(-1) ?? 0) ^ 1;
    expect(readSession([first, unsigned], TERMS)).toMatchObject({ wrong: "damaged", index: 1 });
  });
});

describe("two entries in one place (PROTOCOL 12.5.1)", () => {
  const second = (time: number, rules = RULES): Uint8Array =>
    new Log(rules).say({ kind: "resumed" }, time).entries[1] ?? hash(0);

  test("convict, whatever they say", () => {
    expect(equivocates(second(1), second(2), REFEREE.key)).toBe(true);
    const first = new Log();
    expect(equivocates(second(1), new Log().seal(ANN, 1).entries[1] ?? hash(0), REFEREE.key)).toBe(
      true,
    );
    expect(first.entries).toHaveLength(1);
  });

  test("and nothing else does", () => {
    expect(equivocates(second(1), second(1), REFEREE.key)).toBe(false);
    expect(equivocates(second(1), second(2), ANN.key)).toBe(false);
    expect(equivocates(second(1), second(2, { ...RULES, nonce: hash(2) }), REFEREE.key)).toBe(
      false,
    );
    const [zero = hash(0), one = hash(0)] = [new Log().entries[0], new Log(RULES, 1).entries[0]];
    expect(equivocates(zero, one, REFEREE.key)).toBe(false);
    expect(equivocates(second(1), second(2).subarray(0, -1), REFEREE.key)).toBe(false);
    expect(equivocates(hash(1), second(2), REFEREE.key)).toBe(false);
    const entry = { previous: new Log().last, time: 1n, said: { kind: "resumed" } } as const;
    const elsewhere = REFEREE.signed(ENTRY_TYPE, writeEntry({ ...entry, index: 2 }));
    expect(equivocates(second(2), elsewhere, REFEREE.key)).toBe(false);
    const headless = REFEREE.signed(ENTRY_TYPE, hash(1));
    expect(equivocates(headless, second(2), REFEREE.key)).toBe(false);
    expect(equivocates(second(2), headless, REFEREE.key)).toBe(false);
  });
});

/** Whole games between runs that are made up: what comes after 6.13, and ends (PROTOCOL 4, 6.14). */
import { describe, expect, test } from "vitest";
import type { Terms } from "../../src/job/terms.ts";
import { Found } from "../../src/protocol/found.ts";
import { playGame } from "../../src/protocol/game.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import { Writer } from "../../src/writer.ts";
import { Signer } from "../session/golden.ts";
import { inShort, played } from "./game.ts";
import { HONEST, MadeUpParty, STEPS, type MadeUp } from "./madeup.ts";

const SIGNERS = [new Signer(new Uint8Array(32).fill(1)), new Signer(new Uint8Array(32).fill(2))];

/** What a party makes of its true answers. */
type Lie = (party: Party, query: Query, body: Uint8Array) => Uint8Array;

/** Plays a game between two runs of a job. */
function game(
  a: Partial<MadeUp>,
  b: Partial<MadeUp>,
  changes: Partial<Terms> = {},
  lie: Lie = (_, __, body) => body,
) {
  const parties = [a, b].map((run) => new MadeUpParty({ ...HONEST, ...run }, changes));
  const [first, second] = parties;
  const [one, two] = SIGNERS;
  if (!first || !second || !one || !two) throw new Error("a party is missing");
  const found = new Found();
  const commitments = [first.commitment(one), second.commitment(two)] as const;
  const play = playGame({ terms: first.terms, arity: 2, commitments, found });
  const result = played(play, (party, query) =>
    lie(party, query, (party === 0 ? first : second).answer(query)),
  );
  return { ...result, found, ended: result.result ?? inShort(result) };
}

/** An entry that says nothing: the logs differ, and no party is wrong (6.13). */
const ENTRY = [{ position: 4, direction: 0 }];
const loggedAt = (...steps: number[]): Partial<MadeUp> => ({
  log: (step) => (steps.includes(step) ? ENTRY : []),
});
const LOGGED = loggedAt(3);
const OTHER = new Uint8Array(32).fill(7);
/** A loss chain that is another one from the state after this step on. */
const lossChainAfter = (of: number): Partial<MadeUp> => ({
  lossChain: (step, due) => (step === of ? OTHER : due),
});
/** A log chain that is another one as an operand of COMMIT of this step. */
const logOperandAt = (of: number): Partial<MadeUp> => ({
  logOperand: (step, due) => (step === of ? OTHER : due),
});

/** A body whose last field is a proof, with one hash more, or one fewer if it has any. */
function otherProof(body: Uint8Array, isLonger: boolean): Uint8Array {
  const places = Array.from({ length: 64 }, (_, count) => [count, body.length - 32 * count - 8]);
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  const [count = 0, at = 0] =
    places.find(([count = 0, at = 0]) => view.getBigUint64(at, true) === BigInt(count)) ?? [];
  const hashes = body.subarray(at + 8);
  const more = isLonger || count === 0;
  const out = new Writer().raw(body.subarray(0, at)).u64(more ? count + 1 : count - 1);
  return (more ? out.raw(hashes).raw(new Uint8Array(32)) : out.raw(hashes.subarray(32))).bytes();
}

describe("2.7: a proof of another length gives no root", () => {
  const ON_LOSS = { stopsOnNonFinite: true };
  const cases: readonly (readonly [
    Query["kind"],
    string,
    Partial<MadeUp>,
    Partial<MadeUp>,
    Partial<Terms>,
  ])[] = [
    ["checkpoints", "3.3 0", {}, LOGGED, {}],
    ["loss", "4.10 0", {}, { final: 15 }, ON_LOSS],
    ["slot", "4.11 0", {}, { final: 15 }, { stopsOnSlot: true }],
    ["node", "5.3 -", {}, LOGGED, {}],
    ["slot", "6.14 -", {}, LOGGED, {}],
    ["log", "6.10 -", {}, LOGGED, {}],
    ["log block", "6.10 -", {}, LOGGED, {}],
  ];
  test.each(cases)("kind %s: clause %s", (kind, clause, a, b, changes) => {
    for (const liar of [0, 1] as const) {
      for (const isLonger of [true, false]) {
        const isAsked = { value: false };
        const { ended } = game(a, b, changes, (party, query, body) => {
          if (party !== liar || query.kind !== kind) return body;
          isAsked.value = true;
          return otherProof(body, isLonger);
        });
        if (isAsked.value) expect(ended).toBe(`${liar} ${clause}`);
        else expect(liar).toBe(1);
      }
    }
  });
});

describe("3.2: numbers of a commitment", () => {
  const MAY_STOP = { stopsOnNonFinite: true };
  const LONGER = { steps: STEPS + 1 };
  /** What a run of so many steps, and one of all steps, is convicted of, in either seat. */
  const ended = (final: number, changes: Partial<Terms>): string[] => [
    game({ final }, {}, changes).ended,
    game({}, { final }, changes).ended,
  ];

  test("a run ends with the last step, or before where the job may stop", () => {
    for (const final of [0, STEPS - 1, STEPS + 1]) {
      expect(ended(final, {})).toEqual(["0 3.2 0", "1 3.2 0"]);
    }
    for (const changes of [MAY_STOP, { stopsOnSlot: true }]) {
      expect(ended(0, changes)).toEqual(["0 3.2 0", "1 3.2 0"]);
      expect(ended(STEPS + 1, changes)).toEqual(["0 3.2 0", "1 3.2 0"]);
      const clause = changes === MAY_STOP ? "4.9" : "4.11";
      expect(ended(1, changes)).toEqual([`0 ${clause} 0`, `1 ${clause} 0`]);
    }
    expect(ended(STEPS, LONGER)).toEqual(["0 3.2 0; 1 3.2 0", "0 3.2 0; 1 3.2 0"]);
  });

  test("the number of checkpoints follows from the final step", () => {
    const interval = { checkpointInterval: 5 };
    expect(game({ count: 4 }, {}, interval).ended).toBe("0 3.2 0");
    expect(game({}, { count: 6 }, interval).ended).toBe("1 3.2 0");
  });
});

test("equal runs agree", () => {
  expect(game({}, {}).ended).toBe("agreement");
});

describe("6.14: after logs that differ at step 3", () => {
  test("nothing else differs", () => {
    expect(game(LOGGED, {}).ended).toBe("undecided");
    expect(game({}, loggedAt(3, 9, 19)).ended).toBe("undecided");
  });

  test.each([9, 15, 16, STEPS - 1])("a lie of step %i is found and judged there", (step) => {
    const lie = lossChainAfter(step);
    for (const [a, b, liar] of [
      [lie, LOGGED, 0],
      [LOGGED, lie, 1],
      [{ ...LOGGED, ...lie }, {}, 0],
    ] as const) {
      const { ended, found } = game(a, b);
      expect(ended).toBe(`${liar} 5.8 3`);
      expect([found.phase, found.step, found.node, found.operand]).toEqual([2, step, 1, 0]);
    }
  });

  test("each party's log chain is the one that it has proved", () => {
    const lies = { ...lossChainAfter(9), ...logOperandAt(9) };
    const a = game({ ...LOGGED, ...lies }, {});
    expect(a.ended).toBe("0 5.6.1 2a");
    // The operands are three slots, the loss, and both chains.
    expect([a.found.side, a.found.operand]).toEqual([0, 5]);
    expect(a.found.claimed[0]).not.toBe(a.found.value);
    expect(a.found.claimed[1]).not.toBe(a.found.value);
    const b = game(LOGGED, lies);
    expect(b.ended).toBe("1 5.6.1 2a");
    expect(b.found.claimed[1]).not.toBe(b.found.value);
    const both = game({ ...LOGGED, ...logOperandAt(9) }, lies);
    expect(both.ended).toBe("0 5.6.1 2a; 1 5.6.1 2a");
  });

  test("the roots that are not stated yet come by kind 1 of checkpoints, else by kind 2", () => {
    /** The rounds from the first comparison on, with one before it. */
    const beyond = (a: Partial<MadeUp>, b: Partial<MadeUp>, changes: Partial<Terms>): string[] => {
      const { rounds } = game({ ...LOGGED, ...a }, b, changes);
      return rounds
        .slice(rounds.indexOf(both("slot")) - 1)
        .filter((round) => /state|che|sl/.test(round));
    };
    const both = (kind: string): string => `0 ${kind}, 1 ${kind}`;
    // The end is proved already; then checkpoints 6 and 4, of steps 12 and 8, and 3, proved already;
    // in between is step 7.
    const lie = lossChainAfter(6);
    expect(beyond({}, lie, { checkpointInterval: 2 })).toEqual([
      both("slot"),
      both("checkpoints"),
      both("slot"),
      both("checkpoints"),
      both("slot"),
      both("slot"),
      both("states"),
      both("slot"),
    ]);
    // Only the longer party has not stated the state after the shorter run.
    const ON_LOSS = { stopsOnNonFinite: true };
    expect(beyond({ final: 15 }, {}, ON_LOSS)).toEqual(["1 states", both("slot")]);
    expect(beyond({}, { final: 15 }, ON_LOSS)).toEqual(["0 states", both("slot")]);
    expect(beyond({}, { final: 16 }, ON_LOSS)).toEqual([both("slot")]);
  });

  test("different ends", () => {
    const infinite = (step: number): number => (step === 14 ? 0x7f800000 : 0);
    for (const [seat, other] of [
      [0, 1],
      [1, 0],
    ] as const) {
      const ended = (loss: (step: number) => number, changes: Partial<Terms>): string => {
        const shorter = { loss, final: 15, ...LOGGED };
        const runs = seat === 0 ? [shorter, { loss }] : [{ loss }, shorter];
        return game(runs[0] ?? {}, runs[1] ?? {}, changes).ended;
      };
      expect(ended(infinite, { stopsOnNonFinite: true })).toBe(`${other} 4.8 0`);
      expect(ended(HONEST.loss, { stopsOnNonFinite: true })).toBe(`${seat} 4.9 0`);
    }
  });
});

describe("4.7: different ends", () => {
  /** The shorter run is that of this party, and ends after 15 steps. */
  const ends = (seat: 0 | 1, run: Partial<MadeUp>, changes: Partial<Terms>, final = 15) => {
    const [shorter, longer] = [{ ...run, final }, run];
    const { ended, found } =
      seat === 0 ? game(shorter, longer, changes) : game(longer, shorter, changes);
    return { ended, step: found.step, claimed: found.claimed, value: found.value };
  };
  const infinite: Partial<MadeUp> = { loss: (step) => (step === 14 ? 0xff800000 : 0) };
  const stopped: Partial<MadeUp> = { stops: 15 };
  const ON_LOSS = { stopsOnNonFinite: true };
  const ON_SLOT = { stopsOnSlot: true };
  const ON_BOTH = { ...ON_LOSS, ...ON_SLOT };

  test.each([0, 1] as const)("the shorter run is that of party %i", (seat) => {
    const other = 1 - seat;
    const lost = ends(seat, infinite, ON_LOSS);
    expect(lost).toMatchObject({
      ended: `${other} 4.8 0`,
      step: 14,
      value: "loss -inf (0xff800000)",
    });
    expect(lost.claimed[seat]).toBe("ends after 15 steps");
    expect(lost.claimed[other]).toBe("ends after 20 steps");
    expect(ends(seat, {}, ON_LOSS)).toMatchObject({
      ended: `${seat} 4.9 0`,
      value: "loss 1.0000016689300537 (0x3f80000e)",
    });
    expect(ends(seat, stopped, ON_SLOT)).toMatchObject({
      ended: `${other} 4.11 0`,
      value: "control.stop true",
    });
    expect(ends(seat, {}, ON_SLOT)).toMatchObject({
      ended: `${seat} 4.11 0`,
      value: "control.stop false",
    });
  });

  test("a job that stops on both: the loss first, and then the slot", () => {
    expect(ends(0, infinite, ON_BOTH).ended).toBe("1 4.8 0");
    expect(ends(0, stopped, ON_BOTH).ended).toBe("1 4.11 0");
    expect(ends(0, {}, ON_BOTH).ended).toBe("0 4.11 0");
  });

  test("the smaller final step may be a checkpoint", () => {
    expect(ends(0, {}, ON_LOSS, 16)).toMatchObject({ ended: "0 4.9 0", step: 15 });
  });
});

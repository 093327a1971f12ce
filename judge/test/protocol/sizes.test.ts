/** The lengths of true answers, and the bounds of evidence (PROTOCOL 2.6.1, 8.5). */
import { describe, expect, test } from "vitest";
import type { Step } from "../../src/job/terms.ts";
import { LIMITS } from "../../src/limits.ts";
import { ANSWER_TYPE, writeQuery } from "../../src/protocol/messages.ts";
import { WithoutVerdict } from "../../src/protocol/play.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import { Room } from "../../src/protocol/room.ts";
import { writeSigned } from "../../src/protocol/signed.ts";
import type { Schema } from "../../src/records.ts";
import { Writer } from "../../src/writer.ts";
import { Signer } from "../session/golden.ts";
import { HONEST, MadeUpParty } from "./madeup.ts";

const SIGNER = new Signer(new Uint8Array(32).fill(1));
const PARTY = new MadeUpParty(HONEST);
const { terms } = PARTY;
const CHECKPOINTS = 4;
const BOUNDS = { bytes: 16 * 2 ** 20, messages: 1 };
/** The bytes that 8.5 leaves for the answers of the rounds. */
const ROOM = 16 * 2 ** 20 - (2 * 64 * 1024 + 2 * 4 * 2 ** 20 + 256 * 1024 + 256);

/** The bytes of a message of evidence with this body (2.3, 2.5, 8.1). */
function messageBytes(query: Query, body: Uint8Array): number {
  const answer = Writer.tagged("answer/1")
    .hash(new Uint8Array(32))
    .hash(new Uint8Array(32))
    .blob(writeQuery(query))
    .u8(0)
    .raw(body)
    .bytes();
  const signature = SIGNER.signature(ANSWER_TYPE, answer);
  return new Writer()
    .u8(0)
    .blob(writeSigned({ data: answer, signature }))
    .bytes().length;
}

/** Steps on records, each of parts of these lengths. */
const withRecords =
  (records: number, lengths: readonly number[]) =>
  (t: number): Step => {
    const schema = { parts: () => lengths.map((length) => ({ length })) } as unknown as Schema;
    return { ...terms.step(t), data: { number: 0, root: new Uint8Array(32), records, schema } };
  };

const isEnded = (ask: () => void): boolean => {
  try {
    ask();
    return false;
  } catch (error) {
    if (error instanceof WithoutVerdict) return true;
    throw error;
  }
};

const roomOf = (of = terms, a = CHECKPOINTS): Room => new Room(of, BOUNDS, [a, CHECKPOINTS]);

/** How often a query may be asked of these parties before the answers have no room. */
function asks(query: Query, room = roomOf(), parties: readonly Party[] = [0]): number {
  const asked = parties.map((party) => ({ party, query }));
  let count = 0;
  const ask = (): void => {
    room.ask(asked, 0);
  };
  while (!isEnded(ask)) count++;
  return count;
}

describe("the room of 8.5", () => {
  const first = { first: 0, count: 1 };
  const queries: readonly Query[] = [
    { kind: "checkpoints", indices: [0, 3] },
    { kind: "checkpoints", indices: [1] },
    { kind: "states", steps: [1, 2, 3] },
    { kind: "loss", step: 4 },
    { kind: "nodes", step: 4 },
    { kind: "node hashes", step: 4, range: { first: 0, count: 2 } },
    { kind: "node", step: 4, node: 0 },
    { kind: "node", step: 4, node: 1 },
    { kind: "slot", step: 4, name: "control.stop" },
    { kind: "slot", step: 4, name: "param.b" },
    { kind: "tensor hashes", step: 4, node: 0, side: 1, operand: 0, range: first },
    { kind: "leaf", step: 4, node: 0, side: 1, operand: 0, leaf: 0 },
    { kind: "opening", step: 4, node: 0, operand: 1, leaves: [0] },
    { kind: "opening", step: 4, node: 1, operand: 4, leaves: [0] },
    { kind: "log", step: 4 },
    { kind: "log hashes", step: 4, section: 0, range: first },
  ];
  test.each(queries)("is what true answers of kind $kind take", (query) => {
    expect(asks(query)).toBe(Math.floor(ROOM / messageBytes(query, PARTY.answer(query))));
  });

  test("an answer with values, or with a block of a log, has its greatest length", () => {
    const place = { step: 4, node: 0, output: 0, element: 3 };
    const values: Query = { kind: "values", ...place, path: [0], view: { view: "needs" } };
    expect(asks(values)).toBe(Math.floor(ROOM / messageBytes(values, new Uint8Array(256 * 80))));
    const block: Query = { kind: "log block", step: 4, section: 0, block: 0 };
    const longest = new Writer().blob(new Uint8Array(LIMITS.logBlockBytes)).hashes([]).bytes();
    expect(asks(block)).toBe(Math.floor(ROOM / messageBytes(block, longest)));
  });

  test("records of format 1 come whole, and parts of longer ones with a proof in the record", () => {
    const step = withRecords(5, [100, 60, 60]);
    const hashes = (count: number): Uint8Array[] =>
      Array<Uint8Array>(count).fill(new Uint8Array(32));
    const due = (query: Query, body: Writer): number =>
      Math.floor(ROOM / messageBytes(query, body.bytes()));
    const whole: Query = { kind: "record", index: 1 };
    const record = new Writer().blob(new Uint8Array(100)).hashes(hashes(3));
    expect(asks(whole, roomOf({ ...terms, step }))).toBe(due(whole, record));
    const part: Query = { kind: "record part", data: 0, record: 4, part: 1 };
    const inner = new Writer().blob(new Uint8Array(60)).hashes(hashes(2)).hashes(hashes(1));
    expect(asks(part, roomOf({ ...terms, format: 2, step }))).toBe(due(part, inner));
  });

  test("is that of both parties together", () => {
    const query: Query = { kind: "nodes", step: 4 };
    expect(asks(query, roomOf(), [0, 1])).toBe(Math.floor(asks(query) / 2));
  });

  test("each party's run has its own number of checkpoints", () => {
    const query: Query = { kind: "checkpoints", indices: [0] };
    const length = messageBytes(query, PARTY.answer(query));
    // A run of one checkpoint has no hashes beside it, where one of four has two.
    expect(asks(query, roomOf(terms, 1))).toBe(Math.floor(ROOM / (length - 64)));
    expect(asks(query, roomOf(terms, 1), [1])).toBe(Math.floor(ROOM / length));
  });
});

describe("the limits of one answer and of one query (2.6.1)", () => {
  const ended = (query: Query, of = terms): boolean =>
    isEnded(() => {
      roomOf(of).ask([{ party: 0, query }], 0);
    });
  /** A query for so many states is of 8 bytes for each, behind its tag, kind and number. */
  const most = (LIMITS.queryBytes - "tallystick/query/1".length - 1 - 1 - 8) / 8;
  const states = (count: number): Query => ({
    kind: "states",
    steps: Array.from({ length: count }, (_, k) => k),
  });

  test("a query of 64 KiB, and no longer one", () => {
    const [fits, longer] = [Math.floor(most), Math.floor(most) + 1];
    expect(writeQuery(states(fits)).length).toBeLessThanOrEqual(LIMITS.queryBytes);
    expect(ended(states(fits))).toBe(false);
    expect(ended(states(longer))).toBe(true);
  });

  test("a true answer of 4 MiB, and no longer one", () => {
    const query: Query = { kind: "record", index: 0 };
    const record = (length: number): boolean =>
      ended(query, { ...terms, step: withRecords(1, [length]) });
    const empty = new Writer().blob(new Uint8Array()).hashes([]).bytes();
    const left = LIMITS.answerBytes - (messageBytes(query, empty) - 9);
    expect(record(left)).toBe(false);
    expect(record(left + 1)).toBe(true);
  });
});

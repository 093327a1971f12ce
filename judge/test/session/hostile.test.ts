/** Logs that are cut off or altered: what is wrong is said, and no one else is blamed (12.5). */

import { describe, expect, test } from "vitest";

import { concatBytes } from "../../src/bytes.ts";
import { LIMITS } from "../../src/limits.ts";
import { readSession } from "../../src/session/log.ts";
import { readSigned } from "../../src/protocol/signed.ts";
import { ENTRY_TYPE } from "../../src/session/signed.ts";
import { replaced } from "../commit/golden.ts";
import { words } from "../vectors.ts";
import { ANN, REFEREE } from "./builder.ts";
import { entriesOf, type Signer, TERMS } from "./golden.ts";

/** Logs of every state and of every kind of entry but two. */
const NAMES = ["excluded by a false opening", "two answers to one query"];
const LOGS = NAMES.map((name) => ({ name, entries: entriesOf(name) }));

function dataOf(entry: Uint8Array): Uint8Array {
  return readSigned(entry, LIMITS.entryBytes).data;
}

/** The same bytes, but for one bit. */
function flipped(bytes: Uint8Array, at: number, bit: number): Uint8Array {
  return Uint8Array.from(bytes, (byte, i) => (i === at ? byte ^ (1 << bit) : byte));
}

/** The first byte of every field of an entry's head, of its kind and of its fields, and others. */
function places(data: Uint8Array, next: () => number): number[] {
  const fields = [0, 23, 31, 63, 71, 72, data.length - 1];
  return [...fields, next() % data.length].filter((at) => at < data.length);
}

describe.each(LOGS)("the log of $name", ({ entries }) => {
  test("cut off behind every entry, and within the next one", () => {
    for (let count = 0; count < entries.length; count++) {
      const whole = readSession(entries.slice(0, count), TERMS);
      expect([whole.wrong, whole.index]).toEqual(["", -1]);
      const next = entries[count] ?? new Uint8Array();
      for (const length of [0, 7, next.length - 65, next.length - 1]) {
        const cut = [...entries.slice(0, count), next.subarray(0, length)];
        expect(readSession(cut, TERMS)).toEqual(whole);
      }
    }
  });

  test("an entry that is altered, longer or missing is the statement of no one", () => {
    const next = words(1);
    for (const [index, entry] of entries.entries()) {
      const wrong = index === 0 ? "refused" : "damaged";
      const before = entries.slice(0, index);
      const altered = [
        ...[8 + 71, entry.length - 1, next() % entry.length].map((at) =>
          flipped(entry, at, next() % 8),
        ),
        concatBytes(entry, Uint8Array.of(0)),
        ANN.signed(ENTRY_TYPE, dataOf(entry)),
        REFEREE.signed(`${ENTRY_TYPE}x`, dataOf(entry)),
      ];
      for (const other of altered) {
        // An entry behind it shows that it is not cut off at the end.
        const outcome = readSession([...before, other, entry], TERMS);
        expect(outcome).toMatchObject({ wrong, index, clause: "" });
      }
      if (index > 0 && index + 1 < entries.length) {
        const without = [...before, ...entries.slice(index + 1)];
        expect(readSession(without, TERMS)).toMatchObject({ wrong: "damaged", index, clause: "" });
      }
    }
  });

  test("an entry that the referee signs otherwise convicts it, or is of another log", () => {
    const next = words(2);
    for (const [index, entry] of entries.entries()) {
      const data = dataOf(entry);
      for (const at of places(data, next)) {
        const other = REFEREE.signed(ENTRY_TYPE, flipped(data, at, next() % 8));
        const outcome = readSession(replaced(entries, index, other).slice(0, index + 2), TERMS);
        if (outcome.wrong === "convicted") expect(outcome.index).toBeGreaterThanOrEqual(index);
        else if (index === 0) expect(["refused", "damaged"]).toContain(outcome.wrong);
        else if (index + 1 < entries.length) expect(outcome.wrong).toBe("damaged");
      }
    }
  });
});

test("a referee is convicted by no entry that it has not signed", () => {
  const signers: Signer[] = [ANN, REFEREE];
  const entries = entriesOf("another verdict").slice(0, 5);
  const junk = new Uint8Array(40);
  const outcomes = signers.map((signer) =>
    readSession([...entries, signer.signed(ENTRY_TYPE, junk)], TERMS),
  );
  expect(outcomes.map(({ wrong }) => wrong)).toEqual(["damaged", "convicted"]);
});

import { describe, expect, test } from "vitest";

import { concatBytes, equalBytes, fromHex } from "../../src/bytes.ts";
import { RefusedError } from "../../src/errors.ts";
import { LIMITS } from "../../src/limits.ts";
import { readSigned, requireSigned, writeSigned } from "../../src/protocol/signed.ts";
import { readEntry, writeEntry } from "../../src/session/entries.ts";
import {
  readOpening,
  readSeal,
  receiveOpening,
  receiveSeal,
  writeOpening,
  writeSeal,
} from "../../src/session/seal.ts";
import {
  ENTRY_TYPE,
  isCutOff,
  OPENING_TYPE,
  SEAL_TYPE,
  TURN_TYPE,
} from "../../src/session/signed.ts";
import { readTurn, writeTurn } from "../../src/session/turns.ts";
import { Writer } from "../../src/writer.ts";
import { replaced } from "../commit/golden.ts";
import { bytesAt, FILE, Signer } from "./golden.ts";

/** Reads the bytes of a message of this type, and writes what was read. */
const AGAIN: Readonly<Record<string, (data: Uint8Array) => Uint8Array>> = {
  [ENTRY_TYPE]: (data) => writeEntry(readEntry(data)),
  [TURN_TYPE]: (data) => writeTurn(readTurn(data)),
  [SEAL_TYPE]: (data) => writeSeal(readSeal(data)),
  [OPENING_TYPE]: (data) => writeOpening(readOpening(data)),
};

function again(type: string, data: Uint8Array): Uint8Array {
  return AGAIN[type]?.(data) ?? new Uint8Array();
}

const CASES = FILE.messages.map(({ name, seed, type, data, signed }) => ({
  name,
  type,
  signer: new Signer(fromHex(seed)),
  data: bytesAt(data),
  signed: bytesAt(signed),
}));

function caseOf(name: string): (typeof CASES)[number] {
  const found = CASES.find((one) => one.name === name);
  if (found === undefined) throw new Error(`no message ${name}`);
  return found;
}

describe("vectors/protocol/sessions.json: messages (PROTOCOL 10.2, 10.3, 12.1, 12.2, 13.1, 13.2)", () => {
  test("there are nineteen", () => {
    expect(CASES).toHaveLength(19);
  });

  test.each(CASES)("$name", ({ type, signer, data, signed }) => {
    const read = readSigned(signed, signed.length);
    expect(equalBytes(read.data, data)).toBe(true);
    expect(equalBytes(writeSigned(read), signed)).toBe(true);
    expect(equalBytes(again(type, data), data)).toBe(true);
    expect(equalBytes(signer.signed(type, data), signed)).toBe(true);
    requireSigned(read, type, signer.key);
    expect(() => {
      requireSigned(read, `${type}x`, signer.key);
    }).toThrow(RefusedError);
    expect(() => readSigned(signed, signed.length - 1)).toThrow(RefusedError);
  });

  test.each(CASES)(
    "$name, cut off at every byte, and one byte longer",
    ({ type, data, signed }) => {
      for (let length = 0; length < data.length; length++) {
        expect(() => again(type, data.subarray(0, length))).toThrow(RefusedError);
      }
      expect(() => again(type, concatBytes(data, Uint8Array.of(0)))).toThrow(RefusedError);
      for (let length = 0; length < signed.length; length++) {
        expect(isCutOff(signed.subarray(0, length), LIMITS.entryBytes)).toBe(true);
      }
      expect(isCutOff(signed, LIMITS.entryBytes)).toBe(false);
      expect(isCutOff(signed.subarray(0, -1), signed.length - 1)).toBe(false);
    },
  );

  test.each(CASES)("$name, with a bit of every byte another one", ({ type, data }) => {
    for (const [at, byte] of data.subarray(0, 600).entries()) {
      const other = replaced(Array.from(data), at, byte ^ (1 << (at & 7)));
      try {
        expect(again(type, Uint8Array.from(other))).toEqual(Uint8Array.from(other));
      } catch (error) {
        expect(error).toBeInstanceOf(RefusedError);
      }
    }
  });
});

test("a length alone is cut off, if it is none over the limit (PROTOCOL 12.3.1)", () => {
  const length = (bytes: bigint): Uint8Array => new Writer().u64(bytes).bytes();
  expect(isCutOff(length(0n), 1000)).toBe(true);
  expect(isCutOff(length(928n), 1000)).toBe(true);
  expect(isCutOff(length(929n), 1000)).toBe(false);
  expect(isCutOff(length((1n << 64n) - 1n), 1000)).toBe(false);
  expect(isCutOff(new Uint8Array(7).fill(255), 1000)).toBe(true);
});

test("a seal and an opening are signed by the key that they name (PROTOCOL 10.2, 10.3)", () => {
  const other = new Signer(new Uint8Array(32).fill(9));
  for (const [name, receive] of [
    ["seal", receiveSeal],
    ["opening", receiveOpening],
  ] as const) {
    const { type, signer, data, signed } = caseOf(name);
    expect(receive(signed).signer.raw).toEqual(signer.key.raw);
    expect(() => receive(other.signed(type, data))).toThrow(RefusedError);
    expect(() => receive(signer.signed(`${type}x`, data))).toThrow(RefusedError);
  }
});

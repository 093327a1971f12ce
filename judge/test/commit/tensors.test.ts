import { describe, expect, test } from "vitest";

import { fromHex, toHex } from "../../src/bytes.ts";
import { RefusedError } from "../../src/errors.ts";
import { multiProof } from "../../src/merkle.ts";
import type { Dtype } from "../../src/numbers/bits.ts";
import { sha256 } from "../../src/sha256.ts";
import {
  byteLength,
  canonicalValues,
  LEAF_BYTES,
  leafCount,
  leafHashes,
  opens,
  readOpening,
  tensorDigest,
  type TensorType,
  writeOpening,
} from "../../src/tensors.ts";
import { vectors } from "./golden.ts";

interface Case {
  dtype: Dtype;
  shape: number[];
  seed: number;
  digest: string;
  opened_leaves: number[];
  opening_sha256: string;
}

function pattern(type: TensorType, seed: number): Uint8Array {
  return Uint8Array.from({ length: byteLength(type) }, (_, i) => {
    const byte = (i * 37 + seed) % 61;
    return type.dtype === "bool" ? byte % 2 : byte;
  });
}

function opened(type: TensorType, bytes: Uint8Array, wanted: readonly number[]): Uint8Array {
  const leaves = wanted.map((index) => ({
    index,
    bytes: bytes.subarray(index * LEAF_BYTES, (index + 1) * LEAF_BYTES),
  }));
  const proof = wanted.length > 0 ? multiProof(leafHashes(bytes), wanted) : [];
  return writeOpening({ type, leaves, proof });
}

describe("vectors/commit/tensor.json (COMMITMENTS 3)", () => {
  const { cases } = vectors<{ cases: Case[] }>("commit/tensor.json");

  test.each(cases)("$dtype $shape", (c) => {
    const type = { dtype: c.dtype, shape: c.shape };
    const bytes = pattern(type, c.seed);
    const digest = tensorDigest(type, bytes);
    expect(toHex(digest)).toBe(c.digest);
    const wanted = leafCount(type) > 0 ? c.opened_leaves : [];
    const layout = opened(type, bytes, wanted);
    expect(toHex(sha256(layout))).toBe(c.opening_sha256);
    expect(opens(readOpening(layout, type, wanted), digest)).toBe(true);
    expect(opens(readOpening(layout), new Uint8Array(32))).toBe(false);
    for (let n = 0; n < layout.length; n += 101) {
      expect(() => readOpening(layout.subarray(0, n))).toThrow(RefusedError);
    }
    expect(() => readOpening(Uint8Array.of(...layout, 0))).toThrow(RefusedError);
  });
});

describe("openings (COMMITMENTS 3.6)", () => {
  const type: TensorType = { dtype: "u8", shape: [5000] };
  const bytes = pattern(type, 1);

  test("are refused with another type, other leaves, or another number of hashes", () => {
    const layout = opened(type, bytes, [0, 2]);
    expect(() => readOpening(layout, { dtype: "u8", shape: [5000, 1] })).toThrow(RefusedError);
    expect(() => readOpening(layout, { dtype: "bool", shape: [5000] })).toThrow(RefusedError);
    expect(() => readOpening(layout, type, [0])).toThrow(RefusedError);
    const { leaves, proof } = readOpening(layout);
    for (const other of [
      { type, leaves, proof: [] },
      { type, leaves, proof: [...proof, ...proof] },
      { type, leaves: [...leaves].reverse(), proof },
      { type, leaves: [], proof: [] },
      { type, leaves: [...leaves, { index: 3, bytes: new Uint8Array(1) }], proof },
    ]) {
      expect(() => readOpening(writeOpening(other))).toThrow(RefusedError);
    }
  });

  test("with another byte give another digest", () => {
    const layout = opened(type, bytes, [1]);
    const opening = readOpening(layout, type, [1]);
    const leaves = [{ index: 1, bytes: new Uint8Array(LEAF_BYTES) }];
    expect(opens(opening, tensorDigest(type, bytes))).toBe(true);
    expect(opens({ ...opening, leaves }, tensorDigest(type, bytes))).toBe(false);
  });
});

test("limits of tensors (COMMITMENTS 11.1)", () => {
  const u8 = (shape: number[]): TensorType => ({ dtype: "u8", shape });
  expect(byteLength(u8([2 ** 40]))).toBe(2 ** 40);
  expect(byteLength(u8([2 ** 40, 0]))).toBe(0);
  for (const shape of [[2 ** 40 + 1], [2 ** 40 + 1, 0], [2 ** 20, 2 ** 20, 2], [-1], [0.5]]) {
    expect(() => byteLength(u8(shape))).toThrow(RefusedError);
  }
  expect(() => byteLength(u8(Array.from({ length: 17 }, () => 1)))).toThrow(RefusedError);
  expect(() => byteLength(u8(Array.from({ length: 16 }, () => 2 ** 32)))).toThrow(RefusedError);
});

test("canonical values (COMMITMENTS 3.3)", () => {
  const cases: [Dtype, string, boolean][] = [
    ["f32", "0000c07f0000807f", true],
    ["f32", "0100c07f", false],
    ["f32", "0000c0ff", false],
    ["f32", "0100807f", false],
    ["f64", "000000000000f87f000000000000f07f", true],
    ["f64", "010000000000f07f", false],
    ["f64", "000000000000f8ff", false],
    ["f64", "010000000000f87f", false],
    ["bool", "000101", true],
    ["bool", "02", false],
    ["bf16", "807f80ffc07f0100", true],
    ["bf16", "817f", false],
    ["bf16", "c0ff", false],
    ["f16", "007c00fc007e0100", true],
    ["f16", "017c", false],
    ["f16", "c07f", false],
    ["u8", "ff", true],
    ["i64", "ffffffffffffffff", true],
  ];
  for (const [dtype, bytes, canonical] of cases) {
    expect(canonicalValues(dtype, fromHex(bytes)), `${dtype} ${bytes}`).toBe(canonical);
  }
});

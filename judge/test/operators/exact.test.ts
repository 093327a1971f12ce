/** `exact/1`: what links make of records that no honest run has (OPENING 12.4, 12.5). */
import { expect, test } from "vitest";

import { bitsOf, f64OfBits, type Bits } from "../../src/numbers/bits.ts";
import { callOf, quantityOf, type Contract } from "../../src/operators/element.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail, read, valueOf, type Tensor } from "./calls.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
/** Terms of the product: its links are two of either group, one of 128 terms, and one of the rest. */
const TERMS = 200;
const [FIRST, LAST] = [4, 5];

const bits = (x: number): number => Number(bitsOf("f32", x));
const record = (total: number, sum: bigint, mu: number, nu: number): Bits =>
  bitsOf("f64", total) |
  (BigInt.asUintN(64, sum) << 64n) |
  (BigInt(mu) << 128n) |
  (BigInt(nu) << 160n);

/** A tensor of x, and of zeros. */
const led = (x: number, ...shape: number[]): Tensor => ({
  dtype: "f32",
  shape,
  elements: Array.from({ length: TERMS }, (_, k) => (k === 0 ? bitsOf("f32", x) : 0n)),
});

/** The record after one link of x·y + 0·0 + … from this one. */
function after(B: number, x: number, y: number, link: number, state: Bits): Bits {
  const operands = [led(x, 1, TERMS), led(y, TERMS, 1)];
  const operator = TABLE.get("aten.mm") ?? fail("aten.mm");
  const call = callOf(operator, new Map(), operands, [{ dtype: "f32", shape: [1, 1] }]);
  const found = quantityOf({ family: "exact", B }, { call, output: 0, position: 0 });
  const [chain] = found?.needs ?? [];
  return chain?.kind === "chain"
    ? read(chain.links(link, link + 1, state, []), operands)
    : fail("no chain");
}

const [ONE, SMALL, INFINITE] = [bits(1), bits(2 ** -10), 0x7f800000];

test.each([8, 15, 22])("integers of a magnitude that is not theirs, B = %d", (B) => {
  // m of 1 under the magnitude 1, and the ends of the range.
  const [one, least] = [1n << BigInt(B - 2), -(1n << BigInt(B - 1))];
  const greatest = B === 8 ? 127n : -least;
  const rows: [x: number, mu: number, m: bigint][] = [
    [1, ONE, one],
    [-1, ONE, -one],
    [1, SMALL, greatest],
    [-1, SMALL, least],
    [2, ONE, greatest],
    [-2, ONE, least],
    [1, 0, 0n],
    [-1, 1, least],
    [1, INFINITE, 0n],
    [2 ** 127, INFINITE, 0n],
    [1, INFINITE - 1, 0n],
    [1, INFINITE + 1, 0n],
    [Infinity, ONE, 0n],
    [-Infinity, INFINITE, 0n],
    [NaN, ONE, 0n],
  ];
  for (const [x, mu, m] of rows) {
    const state = record(0.5, 7n, mu, ONE);
    expect([x, mu, after(B, x, 1, FIRST, state)]).toEqual([
      ...[x, mu],
      record(0.5, 7n + m * one, mu, ONE),
    ]);
    const turned = record(0.5, -7n, ONE, mu);
    expect(after(B, 1, x, FIRST, turned)).toBe(record(0.5, -7n + m * one, ONE, mu));
  }
});

test.each([8, 15, 22])("the end of a block, B = %d", (B) => {
  const unit = 2 ** (2 - 2 * (B - 1)); // magnitudes of 1 have the exponent 1
  const rows: [sum: bigint, mu: number, nu: number, total: number][] = [
    [3n, ONE, ONE, 1 + 3 * unit],
    [-3n, ONE, ONE, 1 - 3 * unit],
    [3n, 0, ONE, 1],
    [3n, ONE, 0, 1],
    [3n, 0, INFINITE, NaN],
    [3n, INFINITE, 0, NaN],
    [0n, INFINITE, ONE, NaN],
    [0n, ONE, INFINITE + 1, NaN],
    [0n, ONE, INFINITE - 1, 1],
  ];
  // A sum under a magnitude of 0 counts for nothing, however small it were.
  for (const [mu, nu] of [
    [0, INFINITE - 1],
    [INFINITE - 1, 0],
  ] as const) {
    expect(after(B, 0, 0, LAST, record(0, 3n, mu, nu))).toBe(record(0, 0n, mu, nu));
  }
  for (const [sum, mu, nu, total] of rows) {
    expect([sum, mu, nu, after(B, 0, 0, LAST, record(1, sum, mu, nu))]).toEqual([
      ...[sum, mu, nu],
      record(total, 0n, mu, nu),
    ]);
  }
});

test("magnitudes begin anew in a segment's first link, and grow in the others", () => {
  const state = record(1, 9n, bits(8), bits(16));
  expect(after(8, -3, 5, 0, state)).toBe(record(1, 0n, bits(3), 0));
  expect(after(8, -3, 5, 1, state)).toBe(record(1, 9n, bits(8), bits(16)));
  expect(after(8, -3, 5, 2, state)).toBe(record(1, 9n, bits(8), bits(16)));
  expect(after(8, -3, 5, 2, record(1, 9n, bits(8), bits(4)))).toBe(record(1, 9n, bits(8), bits(5)));
});

test("a block ends within a segment of more terms than it has (NUMERICS 17.2)", () => {
  const TAPS = 300; // an outer value has more than the 256 terms of B = 8
  const ones = (): Tensor => ({
    dtype: "f32",
    shape: [1, 1, 1, TAPS],
    elements: new Array<Bits>(TAPS).fill(bitsOf("f32", 1)),
  });
  const two = (n: bigint): bigint[] => [n, n];
  const attributes = new Map<string, bigint | boolean | readonly bigint[]>([
    ["dilation", two(1n)],
    ["groups", 1n],
    ["output_padding", two(0n)],
    ["padding", two(0n)],
    ["stride", two(1n)],
    ["transposed", false],
  ]);
  const operands = [ones(), ones(), null];
  const operator = TABLE.get("aten.convolution") ?? fail("aten.convolution");
  const call = callOf(operator, attributes, operands, [{ dtype: "f32", shape: [1, 1, 1, 1] }]);
  const place = { call, output: 0, position: 0 };
  const [chain] = quantityOf({ family: "exact", B: 8 }, place)?.needs ?? [];
  if (chain?.kind !== "chain") return fail("no chain");
  // Three links of either group, then 128, 128 and 44 terms.
  const totals = [7, 8, 9].map((links) =>
    f64OfBits(BigInt.asUintN(64, read(chain.links(0, links, 0n, []), operands))),
  );
  expect([chain.count, ...totals]).toEqual([9, 0, 256, 300]);
});

test.each([0, 1, 127, 128, 129, 256])("%d terms and a last one, which is added once", (count) => {
  const ones = (...shape: number[]): Tensor => ({
    dtype: "f32",
    shape,
    elements: new Array<Bits>(shape.reduce((a, b) => a * b)).fill(bitsOf("f32", 1)),
  });
  const operands = [ones(1), ones(1, count), ones(count, 1)];
  const attributes = new Map([
    ["alpha", 1],
    ["beta", 1],
  ]);
  const operator = TABLE.get("aten.addmm") ?? fail("aten.addmm");
  const call = callOf(operator, attributes, operands, [{ dtype: "f32", shape: [1, 1] }]);
  const place = { call, output: 0, position: 0 };
  const found = quantityOf({ family: "rounded", B: 27 }, place) ?? fail("no sum");
  expect(valueOf(found, operands)).toBe(bitsOf("f32", count + 1));
  expect(found.needs[0]).toMatchObject({ kind: "chain", count: Math.ceil((count + 1) / 128) });
});

test("a product of no rounded operator is the same under rounded/1 (NUMERICS 13.1)", () => {
  const row = (...values: number[]): Tensor => ({
    dtype: "f32",
    shape: [1, 1, 1, 2],
    elements: values.map((value) => bitsOf("f32", value)),
  });
  const operands = [row(1, 2), row(3, 4), null];
  const attributes = new Map<string, bigint | boolean | number>([
    ["causal", false],
    ["first", 0n],
    ["scale", 0.5],
    ["softcap", 0],
    ["window", 0n],
  ]);
  const name = "tallystick.attention_scores";
  const operator = TABLE.get(name) ?? fail(name);
  const outputs = [{ dtype: "f32", shape: [1, 1, 1, 1] }] as const;
  const call = callOf(operator, attributes, operands, outputs);
  const of = (contract: Contract): readonly unknown[] => {
    const found = quantityOf(contract, { call, output: 0, position: 0 }) ?? fail(name);
    return [found.kind, found.name, found.needs.map((need) => need.name), valueOf(found, operands)];
  };
  const due = ["local", "out", ["dot"], bitsOf("f32", 0.5 * (1 * 3 + 2 * 4))];
  expect(of({ family: "ordered" })).toEqual(due);
  expect(of({ family: "rounded", B: 27 })).toEqual(due);
});

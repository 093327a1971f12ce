/** Which of two elements is the better one (OPENING 2.5, NUMERICS 1.11, 3.5). */
import { expect, test } from "vitest";

import { bitsOf, type Dtype } from "../../src/numbers/bits.ts";
import { better } from "../../src/operators/quantity.ts";

const QUIET = 0x7fc00001n;
const ROWS: readonly [Dtype, number | bigint, number | bigint, Record<string, 0 | 1>][] = [
  ["f32", 1, 2, { max: 1, min: 0, argmax: 1 }],
  ["f32", 2, 1, { max: 0, min: 1, argmax: 0 }],
  ["f32", -1, 0, { max: 1, min: 0, argmax: 1 }],
  ["f32", -1, -0, { max: 1, min: 0, argmax: 1 }],
  ["f32", 1, 0, { max: 0, min: 1, argmax: 0 }],
  ["f32", 0, -1, { max: 0, min: 1, argmax: 0 }],
  ["f32", 1, 1, { max: 0, min: 0, argmax: 0 }],
  ["f32", -Infinity, -Infinity, { max: 0, min: 0, argmax: 0 }],
  ["f32", 0, -0, { max: 0, min: 1, argmax: 0 }],
  ["f32", -0, 0, { max: 1, min: 0, argmax: 0 }],
  ["f32", -0, -0, { max: 0, min: 0, argmax: 0 }],
  ["f32", NaN, Infinity, { max: 0, min: 0, argmax: 0 }],
  ["f32", -Infinity, NaN, { max: 1, min: 1, argmax: 1 }],
  ["i64", -1n, 0n, { max: 1, min: 0, argmax: 1 }],
  ["i64", 5n, 5n, { max: 0, min: 0, argmax: 0 }],
  ["i64", 2n ** 62n + 1n, 2n ** 62n, { max: 0, min: 1, argmax: 0 }],
];

test.each(ROWS)("%s: %s and %s", (of, a, b, due) => {
  for (const extreme of ["max", "min", "argmax"] as const) {
    expect(better({ extreme, of }, bitsOf(of, a), bitsOf(of, b)), extreme).toBe(due[extreme]);
  }
});

test("the first of two NaNs, whatever their payloads", () => {
  for (const extreme of ["max", "min", "argmax"] as const) {
    expect(better({ extreme, of: "f32" }, QUIET, QUIET + 1n)).toBe(0);
    expect(better({ extreme, of: "f32" }, QUIET + 1n, QUIET)).toBe(0);
  }
});

/** Quotients, remainders and shifts of whole numbers (OPENING 1.9, NUMERICS 10.11). */
import { expect, test } from "vitest";

import { floorDiv, floorMod, shiftLeft, shiftRight } from "../../src/numbers/whole.ts";

test("quotients go down, and a remainder has its divisor's sign", () => {
  const pairs = [
    [7n, 2n],
    [-7n, 2n],
    [7n, -2n],
    [-7n, -2n],
    [6n, 2n],
    [-6n, 2n],
    [6n, -2n],
    [0n, -2n],
  ] as const;
  expect(pairs.map(([a, b]) => [floorDiv(a, b), floorMod(a, b)])).toEqual([
    [3n, 1n],
    [-4n, 1n],
    [-4n, -1n],
    [3n, -1n],
    [3n, 0n],
    [-3n, 0n],
    [-3n, 0n],
    [0n, 0n],
  ]);
});

test("shifts by 0 to 63 bits, and by others", () => {
  const by = [-65n, -1n, 0n, 1n, 63n, 64n, 2n ** 62n];
  expect(by.map((b) => shiftLeft(-5n, b))).toEqual([0n, 0n, -5n, -10n, -(2n ** 63n), 0n, 0n]);
  expect(by.map((b) => shiftRight(-5n, b))).toEqual([-1n, -1n, -5n, -3n, -1n, -1n, -1n]);
  expect(by.map((b) => shiftRight(5n, b))).toEqual([0n, 0n, 5n, 2n, 0n, 0n, 0n]);
});

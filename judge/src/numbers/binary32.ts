/**
 * Binary32 arithmetic (NUMERICS 1.3, 1.4, 1.11) on numbers that are binary32 already.
 *
 * `Math.fround` after one +, −, ·, / or √ in binary64 is RN32 of the exact result: 53 digits are
 * more than 2·24 + 1, so the first rounding never makes a tie or breaks one (Figueroa 1995), and
 * below the normal numbers fewer digits are kept, of a quotient that no 53 digits reach.
 */
import { bitsOfF64, f64OfBits } from "./bits.ts";

/** a + b, one rounding. */
export const add32 = (a: number, b: number): number => Math.fround(a + b);
/** a − b, one rounding. */
export const sub32 = (a: number, b: number): number => Math.fround(a - b);
/** a·b, one rounding. */
export const mul32 = (a: number, b: number): number => Math.fround(a * b);
/** a / b, one rounding. */
export const div32 = (a: number, b: number): number => Math.fround(a / b);
/** √a, one rounding. */
export const sqrt32 = (a: number): number => Math.fround(Math.sqrt(a));

/**
 * fma(a, b, c): RN32(a·b + c), one rounding (NUMERICS 1.4).
 *
 * The product of two binary32 numbers is exact in binary64. Of the sum, Knuth's two-sum gives what
 * RN64 left off, exactly: nothing here overflows or is below 2^−298. The sum is then rounded *to
 * odd*: if something was left off and the last digit is even, the neighbour towards the exact sum
 * is taken. RN32 of a number rounded to odd with two digits more is RN32 of the exact one (Boldo
 * and Melquiond 2008).
 */
export function fma32(a: number, b: number, c: number): number {
  const product = a * b;
  const sum = product + c;
  if (!Number.isFinite(sum)) return sum;
  const other = sum - product;
  const left = product - (sum - other) + (c - other);
  if (left === 0) return Math.fround(sum);
  const bits = bitsOfF64(sum);
  if ((bits & 1n) === 1n) return Math.fround(sum);
  const away = left > 0 === sum > 0;
  return Math.fround(f64OfBits(away ? bits + 1n : bits - 1n));
}

/** max(a, b) of NUMERICS 1.11: a NaN wins, and +0 is larger than −0. It holds of binary64 too. */
export function max(a: number, b: number): number {
  if (Number.isNaN(a)) return NaN;
  if (a === 0 && b === 0) return Object.is(a, -0) ? b : a;
  return a > b ? a : b; // b also where it is a NaN
}

/** min(a, b) of NUMERICS 1.11. */
export function min(a: number, b: number): number {
  return -max(-a, -b);
}

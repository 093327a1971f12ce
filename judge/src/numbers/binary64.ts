/**
 * The functions of binary64 that both parties of a published element compute (OPENING 11): made of
 * RN64 operations in the written order, so every implementation has the same bits.
 */
import { exactly, roundToF64, shiftToEven } from "./rounding.ts";
import { floorDiv, floorMod } from "./whole.ts";

const LN2 = 0x162e42fefa39ef * 2 ** -53;
const HIGH = 0x162e42fefa0000 * 2 ** -53;
const LOW = 0x1cf79abc9e3b39 * 2 ** -92;
const THIRD = 0x16666666666666 * 2 ** -54;
const HALF_ROOT = 0x16a09e667f3bcd * 2 ** -53;
const TENTH = 0x1999999999999a * 2 ** -54;
const ERF_FACTOR = 0x120dd750429b6d * 2 ** -52;
const P = 0x3243f6a8885a308d313198a2e03707344a4093822299f31d0082efa98ec4e6c89452821e638d01377n;
const Q = P >> 1n;

/** t_n = RN64(1 / RN64(n!)). */
const TAYLOR = Array.from({ length: 27 }, (_, n) => {
  let factorial = 1n;
  for (let k = 2n; k <= BigInt(n); k++) factorial *= k;
  return 1 / Number(factorial);
});
const ODD = Array.from({ length: 24 }, (_, k) => 1 / (2 * k + 1));

/** c₀ + c₁·r + …, from the last coefficient down. */
function poly(r: number, c: readonly number[]): number {
  return c.reduceRight((total, one) => total * r + one);
}

/** x·2^k of a finite x, one rounding. */
function scaled(x: number, k: number): number {
  const { n, q } = exactly(x);
  return roundToF64(n, q + k);
}

/** The nearest whole number, ties to even. */
function nearest(x: number): number {
  const { n, q } = exactly(Math.abs(x));
  const whole = Number(shiftToEven(n, -q));
  return x < 0 ? -whole : whole;
}

export function exp(x: number): number {
  if (Number.isNaN(x)) return x;
  const within = Math.min(Math.max(x, -800), 800);
  const k = nearest(within / LN2);
  const r = within - k * HIGH - k * LOW;
  return scaled(poly(r, TAYLOR.slice(0, 20)), k);
}

export function expm1(x: number): number {
  return Math.abs(x) < THIRD ? x * poly(x, TAYLOR.slice(1, 20)) : exp(x) - 1;
}

const atanh2 = (s: number): number => 2 * s * poly(s * s, ODD);

export function log(x: number): number {
  if (x === 0) return -Infinity;
  if (Number.isNaN(x) || x < 0) return NaN;
  if (x === Infinity) return x;
  const { n, q } = exactly(x);
  const length = n.toString(2).length;
  let m = roundToF64(n, -length);
  let k = q + length;
  if (m < HALF_ROOT) {
    m *= 2;
    k -= 1;
  }
  const f = m - 1;
  return k * HIGH + (atanh2(f / (2 + f)) + k * LOW);
}

export function log1p(x: number): number {
  return Math.abs(x) < TENTH ? atanh2(x / (2 + x)) : log(1 + x);
}

/** The magnitude with the sign of x. */
const signed = (magnitude: number, x: number): number =>
  x < 0 || Object.is(x, -0) ? -Math.abs(magnitude) : Math.abs(magnitude);

export function tanh(x: number): number {
  const t = expm1(Math.min(2 * Math.abs(x), 80));
  return signed(t / (t + 2), x);
}

export function erf(x: number): number {
  const a = Math.min(Math.abs(x), 6);
  const q = a * a;
  let term = a;
  let total = a;
  for (let k = 1; k <= 159; k++) {
    term = term * ((2 * q) / (2 * k + 1));
    total += term;
  }
  return signed(Math.min(total * exp(-q) * ERF_FACTOR, 1), x);
}

/** sin(x + quarter·π/2) (OPENING 11.9). */
function wave(x: number, quarter: bigint): number {
  if (!Number.isFinite(x)) return NaN;
  const { n: digits, q } = exactly(x); // of ±0 n is 0, and r = ±0
  const whole = digits << BigInt(q + 320); // to the right, rounded down, where this is negative
  const n = floorDiv(2n * whole + Q, 2n * Q);
  const r = n === 0n ? x : roundToF64(whole - n * Q, -320);
  const j = floorMod(n + quarter, 4n);
  const z = r * r;
  const odd = j % 2n === 1n;
  let total = 0;
  for (let k = odd ? 12 : 11; k >= 0; k--) {
    total = total * -z + (TAYLOR[odd ? 2 * k : 2 * k + 1] ?? 0);
  }
  const value = odd ? total : total * r;
  return j > 1n ? -value : value;
}

export const sin = (x: number): number => wave(x, 0n);
export const cos = (x: number): number => wave(x, 1n);

/**
 * The functions of NUMERICS 5.1, correctly rounded: RN32 of the real number f(x), decided by
 * enclosures of growing precision.
 *
 * That the growing ends: by Lindemann and Weierstrass (of erf: Siegel and Shidlovsky) f(x) is
 * transcendental for every rational x but those that are taken first, and 2^x, log2(x) and 1/√x
 * are irrational, or rational and no dyadic number, but there. So f(x) is never a boundary.
 */
import { decided } from "./decide.ts";
import {
  dyadic,
  minus,
  negated,
  over,
  plus,
  squareRoot,
  timesDyadic,
  whole,
  type Enclosure,
} from "./enclosure.ts";
import { bitLength, exactly, roundToF32, type Dyadic } from "./rounding.ts";
import {
  erf as erfSeries,
  exp as expSeries,
  halfPi,
  ln2,
  log as logSeries,
  sineAndCosine,
} from "./series.ts";

/** Binary digits beyond those of the result that a first try has. */
const GUARD = 64;

/** ⌊log2 |x|⌋ of a number that is not 0. */
const exponent = ({ n, q }: Dyadic): number => bitLength(n < 0n ? -n : n) + q - 1;

/** A scale at which a result about as small as x still has GUARD digits. */
const scaleFor = (x: Dyadic): number => GUARD + Math.max(0, -exponent(x));

/** a·2^k at the scale of a. */
const shifted = (a: Enclosure, k: number): Enclosure => timesDyadic(a, 1n, k);

/** exp(x) − 1 of x > 0, x < 2^10. */
function expm1Of(x: Enclosure, P: number): Enclosure {
  const { digits, k } = expSeries(x, P);
  return minus(shifted(digits, k), whole(1n, P));
}

function exp(x: number): number {
  if (x > 89) return Infinity; // exp(89) > 2^128
  if (x < -104) return 0; // exp(−104) < 2^−150, and −∞
  const { n, q } = exactly(x); // of 0 the enclosure is 1 to 1
  return decided((P) => {
    const { digits, k } = expSeries(dyadic(n, q, P), P);
    return { ...digits, q: k };
  }, GUARD);
}

function exp2(x: number): number {
  if (x >= 128) return Infinity;
  if (x <= -150) return 0; // 2^−150 is a tie, and 0 the even one
  const { n, q } = exactly(x); // of a whole x a number of binary32, which is no boundary
  return decided((P) => {
    const { digits, k } = expSeries(timesDyadic(ln2(P), n, q), P);
    return { ...digits, q: k };
  }, GUARD);
}

function expm1(x: number): number {
  if (x === 0) return x;
  if (x > 89) return Infinity;
  if (x < -18) return -1; // exp(−18) < 2^−25
  const value = exactly(x);
  const { n, q } = value;
  return decided((P) => {
    const { digits, k } = expSeries(dyadic(n, q, P), P);
    return { ...minus(shifted(digits, k), whole(1n, P)), q: 0 };
  }, scaleFor(value));
}

function log(x: number): number {
  if (x === 0) return -Infinity;
  if (x < 0) return NaN;
  if (x === Infinity) return Infinity;
  const { n, q } = exactly(x); // of 1 the enclosure is 0 to 0
  return decided((P) => ({ ...logSeries(n, q, P), q: 0 }), GUARD + 24);
}

function log2(x: number): number {
  if (x === 0) return -Infinity;
  if (x < 0) return NaN;
  if (x === Infinity) return Infinity;
  const { n, q } = exactly(x);
  const top = exponent({ n, q });
  if (n === 1n << BigInt(top - q)) return top; // +0 of 1
  return decided((P) => {
    const value = logSeries(n, q, P);
    if (value.lo > 0n) return { ...over(value, ln2(P), P), q: 0 };
    if (value.hi < 0n) return { ...negated(over(negated(value), ln2(P), P)), q: 0 };
    return undefined;
  }, GUARD + 24);
}

function log1p(x: number): number {
  if (x === 0) return x;
  if (x < -1) return NaN;
  if (x === -1) return -Infinity;
  if (x === Infinity) return Infinity;
  const { n, q } = exactly(x);
  // 1 + x exactly, over a common power of two.
  const low = Math.min(q, 0);
  const sum = (n << BigInt(q - low)) + (1n << BigInt(-low));
  return decided((P) => ({ ...logSeries(sum, low, P), q: 0 }), scaleFor({ n, q }));
}

/** tanh x = (e^2x − 1) / (e^2x + 1), x > 0. */
function tanhOfPositive(x: number): number {
  if (x >= 16) return 1; // 1 − tanh 16 < 2^−45
  const value = exactly(x);
  return decided((P) => {
    const above = expm1Of(dyadic(value.n, value.q + 1, P), P);
    return { ...over(above, plus(above, whole(2n, P)), P), q: 0 };
  }, scaleFor(value));
}

function erfOfPositive(x: number): number {
  if (x >= 4) return 1; // 1 − erf 4 < 1.6e−8 < 2^−25
  const value = exactly(x);
  return decided((P) => ({ ...erfSeries(value.n, value.q, P), q: 0 }), scaleFor(value));
}

/** sigmoid x = 1 / (1 + e^−x). */
function sigmoid(x: number): number {
  if (x >= 64) return 1; // e^−64 < 2^−25
  if (x < -104) return 0; // below e^−104 < 2^−150, and −∞
  const { n, q } = exactly(x); // of 0 the enclosure is 1/2 to 1/2
  return decided((P) => {
    const { digits, k } = expSeries(dyadic(-n, q, P), P);
    const below = plus(whole(1n, P), shifted(digits, k));
    // Of a large divisor 2^k is taken out, so that the quotient keeps its digits.
    const out = Math.max(k, 0);
    return { ...over(whole(1n << BigInt(out), P), below, P), q: -out };
  }, GUARD);
}

/**
 * sin(x + quarter·π/2), x ≥ 0: with n the whole number nearest x/(π/2), as much of π as it takes,
 * and r = x − n·π/2.
 */
function wave(x: number, quarter: number): number {
  const value = exactly(x);
  const more = Math.max(0, exponent(value)) + 2;
  return decided((P) => {
    const scale = P + more;
    const unit = halfPi(scale);
    const at = dyadic(value.n, value.q, scale);
    const n = (2n * at.lo + unit.lo) / (2n * unit.lo);
    const rest = minus(at, { lo: unit.lo * n, hi: unit.hi * n });
    const below = rest.hi <= 0n;
    if (!below && rest.lo < 0n) return undefined;
    const size = below ? negated(rest) : rest;
    const r = timesDyadic(size, 1n, -more);
    const { sine, cosine } = sineAndCosine(r, P);
    const turn = Number((n + BigInt(quarter)) % 4n);
    const found = turn % 2 === 1 ? cosine : below ? negated(sine) : sine;
    return { ...(turn >= 2 ? negated(found) : found), q: 0 };
  }, scaleFor(value));
}

function sin(x: number): number {
  if (x === 0) return x;
  if (!Number.isFinite(x)) return NaN;
  return x < 0 ? -wave(-x, 0) : wave(x, 0);
}

function cos(x: number): number {
  if (x === 0) return 1;
  return Number.isFinite(x) ? wave(Math.abs(x), 1) : NaN;
}

/** rsqrt x = 1/√x: ⌊√(2^2s / x)⌋, and whether something was left off, round as the real number. */
function rsqrt(x: number): number {
  if (x === 0) return 1 / x;
  if (x < 0) return NaN;
  if (x === Infinity) return 0;
  const { n, q } = exactly(x);
  const odd = Math.abs(q % 2);
  const whole = n << BigInt(odd);
  // 1/√x = √(2^2s / whole)·2^−s·2^−(q − odd)/2
  const s = 128;
  const square = 1n << BigInt(2 * s);
  const root = squareRoot(square / whole);
  const exact = root * root * whole === square;
  return roundToF32(2n * root + (exact ? 0n : 1n), -s - (q - odd) / 2 - 1);
}

/** An odd function of its values at positive numbers; ±0 are their own. */
const odd =
  (f: (x: number) => number) =>
  (x: number): number => {
    if (x === 0) return x;
    return x < 0 ? -f(-x) : f(x);
  };

const FUNCTIONS = {
  exp,
  exp2,
  expm1,
  log,
  log2,
  log1p,
  tanh: odd(tanhOfPositive),
  erf: odd(erfOfPositive),
  sigmoid,
  sin,
  cos,
  rsqrt,
} as const;

/** The names of NUMERICS 5.1. */
export type Elementary = keyof typeof FUNCTIONS;

export const ELEMENTARY = Object.keys(FUNCTIONS) as readonly Elementary[];

/** f(x) of a binary32 x (NUMERICS 5.1 to 5.4). */
export function elementary(name: Elementary, x: number): number {
  return Number.isNaN(x) ? NaN : FUNCTIONS[name](x);
}

/** Real numbers with a bound (OPENING 10): pairs of binary64, every operation RN64. */
import * as f64 from "./binary64.ts";
import { bitsOfF64, f64OfBits, type Bits } from "./bits.ts";

const C = 2 ** -45;
const F = 2 ** -42;
const W = 2 ** -47;
const T = f64OfBits(1n << 14n); // 2^−1060

export class Pair {
  constructor(
    readonly x: number,
    readonly e: number = 0,
  ) {}
}

/** After every operation (OPENING 10.4). */
function made(x: number, e: number, ...of: readonly Pair[]): Pair {
  if (Number.isNaN(x)) return new Pair(x, Infinity);
  if (Number.isFinite(x)) return new Pair(x, Number.isNaN(e) ? Infinity : e);
  const certain = of.some((a) => Math.abs(a.x) === Infinity && a.e === 0);
  return new Pair(x, certain ? 0 : Infinity);
}

export const negated = (a: Pair): Pair => new Pair(-a.x, a.e);

export const plus = (a: Pair, b: Pair): Pair =>
  made(a.x + b.x, a.e + b.e + C * (Math.abs(a.x) + Math.abs(b.x)), a, b);

export const minus = (a: Pair, b: Pair): Pair => plus(a, negated(b));

export function times(a: Pair, b: Pair): Pair {
  const x = a.x * b.x;
  const t = a.x !== 0 && b.x !== 0 ? T : 0;
  const e = a.e * Math.abs(b.x) + b.e * Math.abs(a.x) + a.e * b.e + C * Math.abs(x) + t;
  return made(x, e, a, b);
}

export function over(a: Pair, b: Pair): Pair {
  const s = Math.abs(b.x) - b.e;
  const x = a.x / b.x;
  const t = a.x !== 0 ? T : 0;
  const e = s > 0 ? (a.e + Math.abs(x) * b.e) / s + C * Math.abs(x) + t : Infinity;
  return made(x, e, a, b);
}

export function root(a: Pair): Pair {
  const x = Math.sqrt(a.x);
  const s = a.e === 0 ? 0 : Math.min(a.e / x, Math.sqrt(a.e));
  return made(x, s + C * x, a);
}

const grown = (a: Pair): number => (a.e < 1 ? 2 * a.e : Infinity);

// Where t is infinite by 10.3, the number before it is infinite or a NaN, and the bound too.
function exp(a: Pair): Pair {
  const x = f64.exp(a.x);
  return made(x, x * (grown(a) + F) + (Number.isFinite(a.x) ? T : 0), a);
}

function log(a: Pair): Pair {
  const x = f64.log(a.x);
  const s = a.x - a.e;
  return made(x, (s > 0 ? a.e / s : Infinity) + F * Math.abs(x), a);
}

function sigmoid(a: Pair): Pair {
  const x = 1 / (1 + f64.exp(-a.x));
  return made(x, x * (grown(a) + F) + (Math.abs(a.x) === Infinity ? 0 : T), a);
}

// x is 0 only where a is: no function of 11 makes a 0 of another number.
const sloped =
  (f: (x: number) => number, slope: number) =>
  (a: Pair): Pair => {
    const x = f(a.x);
    return made(x, slope * a.e + F * Math.abs(x) + (x !== 0 ? T : 0), a);
  };

const ofOperand =
  (f: (x: number) => number) =>
  (a: Pair): Pair => {
    const x = f(a.x);
    return made(x, F * Math.abs(x) + (a.x !== 0 ? T : 0), a);
  };

const LN2 = new Pair(0x162e42fefa39ef * 2 ** -53);

/** The functions of OPENING 10.3, and exp2 and log2 of 10.9. */
export const FUNCTIONS: Readonly<Record<string, (a: Pair) => Pair>> = {
  exp,
  log,
  sigmoid,
  tanh: sloped(f64.tanh, 1),
  sin: sloped(f64.sin, 1),
  cos: sloped(f64.cos, 1),
  erf: sloped(f64.erf, 1.25),
  expm1: ofOperand(f64.expm1),
  log1p: ofOperand(f64.log1p),
  sqrt: root,
  rsqrt: (a) => over(new Pair(1), root(a)),
  exp2: (a) => exp(times(a, LN2)),
  log2: (a) => over(log(a), LN2),
};

/** Widened by n (OPENING 10.5). */
export function widened(a: Pair, n: number): Pair {
  if (Math.abs(a.x) === Infinity && a.e === 0) return a;
  const e = a.e + (n + 16) * W * Math.abs(a.x);
  return new Pair(a.x, Number.isNaN(e) ? Infinity : e);
}

/** A pair that is stated (OPENING 1.3, 10.8): x, then e. */
export const bitsOfPair = ({ x, e }: Pair): Bits => bitsOfF64(x) | (bitsOfF64(e) << 64n);

/** A pair that is agreed: an e that is a NaN or negative counts as infinite (OPENING 9.4.1). */
export function pairOfBits(bits: Bits): Pair {
  const e = f64OfBits(BigInt.asUintN(64, bits >> 64n));
  return new Pair(f64OfBits(BigInt.asUintN(64, bits)), e >= 0 ? e : Infinity);
}

/** pow(x, y) of NUMERICS 5.8: RN32 of the real number x^y of two binary32 numbers. */
import { decided } from "./decide.ts";
import { squareRoot, timesDyadic } from "./enclosure.ts";
import { bitLength, exactly, roundToF32, type Dyadic } from "./rounding.ts";
import { exp, log } from "./series.ts";

const isOdd = (y: number): boolean => Number.isInteger(y) && y % 2 !== 0;

/** pow(x, y) in the order of the table of 5.8. */
export function power(x: number, y: number): number {
  if (y === 0 || x === 1) return 1;
  if (Number.isNaN(x) || Number.isNaN(y)) return NaN;
  const size = Math.abs(x);
  if (!Number.isFinite(y)) {
    if (size === 1) return 1;
    return size > 1 === y > 0 ? Infinity : 0;
  }
  const negative = (x < 0 || Object.is(x, -0)) && isOdd(y);
  if (size === 0 || size === Infinity) {
    const magnitude = (size === 0) === y > 0 ? 0 : Infinity;
    return negative ? -magnitude : magnitude;
  }
  if (x < 0 && !Number.isInteger(y)) return NaN;
  const magnitude = size === 1 ? 1 : powerOf(exactly(size), exactly(y));
  return negative ? -magnitude : magnitude;
}

/** The number with an odd n. */
function reduced({ n, q }: Dyadic): Dyadic {
  let [odd, power] = [n, q];
  while (odd % 2n === 0n) {
    odd /= 2n;
    power += 1;
  }
  return { n: odd, q: power };
}

/** RN32(x^y), x > 0 and not 1, y not 0. */
function powerOf(x: Dyadic, y: Dyadic): number {
  const base = reduced(x);
  const by = reduced(y);
  // y·log2 x, roughly: far outside of binary32 nothing more is needed. log2 x is at least
  // 2^−24 in magnitude, and its estimate is off by less than a hundredth of it.
  const rough = 80;
  const twos = timesDyadic(log(base.n, base.q, rough), by.n, by.q);
  const limit = 200n << BigInt(rough);
  if (twos.lo > limit) return Infinity;
  if (twos.hi < -limit) return 0;
  const exact = exactPower(base, by);
  if (exact !== undefined) return roundToF32(exact.n, exact.q);
  return decided((P) => {
    const { digits, k } = exp(timesDyadic(log(base.n, base.q, P), by.n, by.q), P);
    return { ...digits, q: k };
  }, 160);
}

/**
 * x^y where it is a dyadic number of at most 64 digits; else it is no boundary of RN32, which have
 * at most 25.
 *
 * Let x = n·2^q and y = a·2^−b, n and a odd. x^y is rational only if x is the 2^b-th power of a
 * rational number, that is, n is one and 2^b divides q. With the root r·2^s it is r^a·2^(s·a): for
 * a < 0 no dyadic number unless r = 1, and for a > 0 an odd number of more than a·log2(r) − 1
 * digits, times a power of two.
 */
function exactPower(x: Dyadic, y: Dyadic): Dyadic | undefined {
  let { n, q } = x;
  for (let halvings = Math.max(0, -y.q); halvings > 0; halvings--) {
    const root = squareRoot(n);
    if (root * root !== n || q % 2 !== 0) return undefined;
    n = root;
    q /= 2;
  }
  const a = y.n << BigInt(Math.max(0, y.q));
  if (n === 1n) return { n: 1n, q: q * Number(a) };
  if (a < 0n || a * BigInt(bitLength(n) - 1) > 64n) return undefined;
  return { n: n ** a, q: q * Number(a) };
}

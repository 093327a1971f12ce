/** Enclosures of exp, log, sine, cosine, erf and of their constants, at a scale of 2^P. */
import {
  dyadic,
  minus,
  over,
  overWhole,
  plus,
  ratio,
  rooted,
  times,
  timesWhole,
  whole,
  withTail,
  within,
  type Enclosure,
} from "./enclosure.ts";
import { bitLength } from "./rounding.ts";

/** A constant at each scale, computed once. */
function remembered(make: (P: number) => Enclosure): (P: number) => Enclosure {
  const known = new Map<number, Enclosure>();
  return (P) => {
    let found = known.get(P);
    if (found === undefined) {
      found = make(P);
      known.set(P, found);
    }
    return found;
  };
}

/**
 * artanh(s) = s + s³/3 + s⁵/5 + …, 0 ≤ s ≤ 1/2. What follows a power p is at most
 * p·(s² + s⁴ + …) ≤ p/3.
 */
function artanh(s: Enclosure, P: number): Enclosure {
  const square = times(s, s, P);
  let power = s;
  let sum = s;
  for (let k = 3n; power.hi > 1n; k += 2n) {
    power = times(power, square, P);
    sum = plus(sum, overWhole(power, k));
  }
  return withTail(sum, power);
}

/** arctan(1/k) = 1/k − 1/(3k³) + …: what follows a power is at most that power. */
function arctanOfInverse(k: bigint, P: number): Enclosure {
  let power = ratio(1n, k, P);
  let sum = power;
  for (let j = 1n; power.hi > 1n; j++) {
    power = overWhole(power, k * k);
    const term = overWhole(power, 2n * j + 1n);
    sum = j % 2n === 1n ? minus(sum, term) : plus(sum, term);
  }
  return within(sum, power);
}

/** The natural logarithm of 2: 2·artanh(1/3). */
export const ln2 = remembered((P) => timesWhole(artanh(ratio(1n, 3n, P), P), 2n));

/** π/2, by Machin: π/4 = 4·arctan(1/5) − arctan(1/239). */
export const halfPi = remembered((P) =>
  timesWhole(minus(timesWhole(arctanOfInverse(5n, P), 4n), arctanOfInverse(239n, P)), 2n),
);

/** 2/√π. */
const erfFactor = remembered((P) => over(whole(2n, P), rooted(timesWhole(halfPi(P), 2n), P), P));

/** exp(t) as `digits`·2^k, t of either sign and of a magnitude below 2^32. */
export function exp(t: Enclosure, P: number): { digits: Enclosure; k: number } {
  const unit = ln2(P);
  let k = t.lo / unit.lo;
  let rest = minus(t, timesWhole(unit, k));
  while (rest.lo < 0n) {
    k -= 1n;
    rest = minus(t, timesWhole(unit, k));
  }
  return { digits: expOfSmall(rest, P), k: Number(k) };
}

/**
 * exp(r) = 1 + r + r²/2 + …, 0 ≤ r < 2: what follows term k ≥ 3 is at most that term; a term k < 3
 * is below 2^−P, P ≥ 64, only where r is below 2^−31, and then what follows it is less.
 */
function expOfSmall(r: Enclosure, P: number): Enclosure {
  if (r.hi >> BigInt(P) >= 2n) throw new Error("a remainder of 2 or more");
  let term = whole(1n, P);
  let sum = term;
  for (let k = 1n; term.hi > 1n; k++) {
    term = overWhole(times(term, r, P), k);
    sum = plus(sum, term);
  }
  return withTail(sum, term);
}

/** log(n·2^q), n > 0: k·log 2 + 2·artanh((z − 1)/(z + 1)), z in [0.7, 1.4). */
export function log(n: bigint, q: number, P: number): Enclosure {
  const length = bitLength(n);
  const b = n * 10n < 7n * (1n << BigInt(length)) ? length - 1 : length;
  const one = 1n << BigInt(b);
  const above = n >= one;
  const s = ratio(above ? n - one : one - n, n + one, P);
  const part = timesWhole(artanh(s, P), above ? 2n : -2n);
  return plus(timesWhole(ln2(P), BigInt(q + b)), part);
}

/** Sine and cosine of r, 0 ≤ r ≤ 1: the terms fall, so what follows one is at most that one. */
export function sineAndCosine(r: Enclosure, P: number): { sine: Enclosure; cosine: Enclosure } {
  let term = whole(1n, P);
  let cosine = term;
  let sine: Enclosure = { lo: 0n, hi: 0n };
  for (let k = 1n; term.hi > 1n; k++) {
    term = overWhole(times(term, r, P), k);
    const grow = k % 4n < 2n ? plus : minus;
    if (k % 2n === 1n) sine = grow(sine, term);
    else cosine = grow(cosine, term);
  }
  return { sine: within(sine, term), cosine: within(cosine, term) };
}

/**
 * erf(n·2^q), 0 < n·2^q < 4: (2/√π)·exp(−x²)·x·(1 + 2x²/3 + (2x²)²/(3·5) + …). After 2x²/(2k + 3)
 * is at most 1/2, what follows a term is at most that term; before, k < 31 and all factors so far
 * were above 1/2, so that the term is above 2^−31, and P ≥ 64.
 */
export function erf(n: bigint, q: number, P: number): Enclosure {
  const x = dyadic(n, q, P);
  const square = dyadic(n * n, 2 * q, P);
  const twice = timesWhole(square, 2n);
  let term = whole(1n, P);
  let sum = term;
  for (let k = 1n; term.hi > 1n; k++) {
    term = overWhole(times(term, twice, P), 2n * k + 1n);
    sum = plus(sum, term);
  }
  const { digits, k } = exp(timesWhole(square, -1n), P);
  const small: Enclosure = {
    lo: digits.lo >> BigInt(-k),
    hi: (digits.hi >> BigInt(-k)) + 1n,
  };
  const product = times(times(withTail(sum, term), small, P), x, P);
  return times(product, erfFactor(P), P);
}

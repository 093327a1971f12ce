/**
 * Arithmetic of enclosures: two whole numbers, a scale of 2^P, and a real number that is proven to
 * lie between them. Every operation rounds the lower end down and the upper end up, so no error is
 * estimated anywhere: what comes out encloses the real result of what went in.
 */
export interface Enclosure {
  readonly lo: bigint;
  readonly hi: bigint;
}

/** ⌈n / 2^shift⌉. */
const shiftUp = (n: bigint, shift: bigint): bigint => -(-n >> shift);
/** ⌊a / b⌋ and ⌈a / b⌉ of a ≥ 0, b > 0. */
const under = (a: bigint, b: bigint): bigint => a / b;
const above = (a: bigint, b: bigint): bigint => (a + b - 1n) / b;

/** The whole number n at scale P. */
export const whole = (n: bigint, P: number): Enclosure => ({
  lo: n << BigInt(P),
  hi: n << BigInt(P),
});

// A bigint that is shifted to the right by a negative number is shifted to the left.
/** n·2^q at scale P. */
export function dyadic(n: bigint, q: number, P: number): Enclosure {
  const shift = BigInt(-q - P);
  return { lo: n >> shift, hi: shiftUp(n, shift) };
}

/** a / b of whole numbers, a ≥ 0, b > 0, at scale P. */
export const ratio = (a: bigint, b: bigint, P: number): Enclosure => ({
  lo: under(a << BigInt(P), b),
  hi: above(a << BigInt(P), b),
});

export const plus = (a: Enclosure, b: Enclosure): Enclosure => ({
  lo: a.lo + b.lo,
  hi: a.hi + b.hi,
});
export const minus = (a: Enclosure, b: Enclosure): Enclosure => ({
  lo: a.lo - b.hi,
  hi: a.hi - b.lo,
});
export const negated = (a: Enclosure): Enclosure => ({ lo: -a.hi, hi: -a.lo });

/** a·k of a whole number k of either sign. */
export const timesWhole = (a: Enclosure, k: bigint): Enclosure =>
  k >= 0n ? { lo: a.lo * k, hi: a.hi * k } : { lo: a.hi * k, hi: a.lo * k };

/** a·n·2^q, of either signs. */
export function timesDyadic(a: Enclosure, n: bigint, q: number): Enclosure {
  const { lo, hi } = timesWhole(a, n);
  return { lo: lo >> BigInt(-q), hi: shiftUp(hi, BigInt(-q)) };
}

/** a·b, neither negative. */
export const times = (a: Enclosure, b: Enclosure, P: number): Enclosure => ({
  lo: (a.lo * b.lo) >> BigInt(P),
  hi: shiftUp(a.hi * b.hi, BigInt(P)),
});

/** a / k of a whole number k > 0, a not negative. */
export const overWhole = (a: Enclosure, k: bigint): Enclosure => ({
  lo: under(a.lo, k),
  hi: above(a.hi, k),
});

/** a / b, a not negative and b positive. */
export const over = (a: Enclosure, b: Enclosure, P: number): Enclosure => ({
  lo: under(a.lo << BigInt(P), b.hi),
  hi: above(a.hi << BigInt(P), b.lo),
});

/** At least a, and at most a + b: what a series of positive terms has that ends after a. */
export const withTail = (a: Enclosure, b: Enclosure): Enclosure => ({ lo: a.lo, hi: a.hi + b.hi });

/** Within b of a: what an alternating series of falling terms has. */
export const within = (a: Enclosure, b: Enclosure): Enclosure => ({
  lo: a.lo - b.hi,
  hi: a.hi + b.hi,
});

/** ⌊√n⌋, by Newton's method from above. */
export function squareRoot(n: bigint): bigint {
  if (n < 2n) return n;
  let x = 1n << BigInt((n.toString(2).length + 1) >> 1);
  for (;;) {
    const next = (x + n / x) >> 1n;
    if (next >= x) return x;
    x = next;
  }
}

/** √a, a not negative. */
export const rooted = (a: Enclosure, P: number): Enclosure => ({
  lo: squareRoot(a.lo << BigInt(P)),
  hi: squareRoot(a.hi << BigInt(P)) + 1n,
});

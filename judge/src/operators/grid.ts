/** The grid G of NUMERICS 13.2 in the order of its numbers, and its boundaries. */
import { bitsOfF32, f32OfBits } from "../numbers/bits.ts";
import { exactly, roundToGrid, type Dyadic } from "../numbers/rounding.ts";

const INFINITE = 0x7f800000;

/** n·2^q + m·2^r. */
export function sumOf(a: Dyadic, b: Dyadic): Dyadic {
  const q = Math.min(a.q, b.q);
  return { n: (a.n << BigInt(a.q - q)) + (b.n << BigInt(b.q - q)), q };
}

export const minusOf = ({ n, q }: Dyadic): Dyadic => ({ n: -n, q });

/** |a − b|. */
function distance(a: Dyadic, b: Dyadic): Dyadic {
  const { n, q } = sumOf(a, minusOf(b));
  return { n: n < 0n ? -n : n, q };
}

/** Whether a < b. */
const less = (a: Dyadic, b: Dyadic): boolean => sumOf(a, minusOf(b)).n < 0n;

/** G for one B: its elements are counted in the order of the numbers, zero (of either sign) being 0. */
export class Grid {
  readonly #step: number;

  constructor(readonly B: number) {
    this.#step = 2 ** (32 - B);
  }

  /** The count of R of a real number. */
  nearest({ n, q }: Dyadic): number {
    return this.count(roundToGrid(n, q, this.B));
  }

  /** rev(x, c) of NUMERICS 14.10 as a count: not above x, nearest, or not below x. */
  towards(x: Dyadic, entry: 0 | 1 | 2): number {
    const nearest = this.nearest(x);
    if (entry === 1) return nearest;
    const element = this.element(nearest);
    const side = Number.isFinite(element)
      ? Number(sumOf(exactly(element), minusOf(x)).n > 0n) -
        Number(sumOf(exactly(element), minusOf(x)).n < 0n)
      : Math.sign(element);
    if (entry === 0) return side > 0 ? nearest - 1 : nearest;
    return side < 0 ? nearest + 1 : nearest;
  }

  /** Whether a number is an element. */
  has(x: number): boolean {
    return !Number.isNaN(x) && Number.isInteger(this.count(x));
  }

  /** The count of an element; the infinities are next to the greatest finite ones. */
  count(x: number): number {
    const magnitude = bitsOfF32(Math.abs(x)) / this.#step;
    return x < 0 ? -magnitude : magnitude;
  }

  /** The element of a count; a zero is +0. */
  element(count: number): number {
    const magnitude = f32OfBits(Math.abs(count) * this.#step);
    return count < 0 ? -magnitude : magnitude;
  }

  /**
   * The boundary between an element and its upper (+1) or lower (−1) neighbour, an infinity
   * counting as ±2^128; undefined beyond an infinity (OPENING 8.7.1).
   */
  boundary(count: number, side: 1 | -1): Dyadic | undefined {
    const other = count + side;
    if (Math.abs(other) * this.#step > INFINITE) return undefined;
    const { n, q } = sumOf(this.#real(count), this.#real(other));
    return { n, q: q - 1 };
  }

  #real(count: number): Dyadic {
    const x = this.element(count);
    if (Number.isFinite(x)) return exactly(x);
    return { n: x < 0 ? -1n : 1n, q: 128 };
  }

  /** Whether `side`'s boundary of an element is further than `limit` from v, and the other's nearer. */
  readsFar(count: number, side: 1 | -1, v: Dyadic, limit: Dyadic): boolean {
    const own = this.boundary(count, side);
    if (own === undefined) return true;
    const far = distance(own, v);
    const other = this.boundary(count, side === 1 ? -1 : 1);
    return less(limit, far) && other !== undefined && less(distance(other, v), far);
  }
}

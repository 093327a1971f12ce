/** RN32 of a real number that only enclosures are known of (NUMERICS 5.1). */
import type { Enclosure } from "./enclosure.ts";
import { roundToF32 } from "./rounding.ts";

/** An enclosure of f(x)·2^−q at scale P; undefined where P is too small to say anything. */
export type Enclosing = (P: number) => (Enclosure & { readonly q: number }) | undefined;

/**
 * RN32(f(x)): the scale grows until both ends of the enclosure round to one number. RN32 is
 * monotone, so this is the result. It ends wherever f(x) is not itself a boundary of RN32: the
 * callers take the arguments for which it might be first.
 */
export function decided(enclosing: Enclosing, start: number): number {
  for (let P = start; P <= 1 << 14; P *= 2) {
    const found = enclosing(P);
    if (found === undefined) continue;
    const low = roundToF32(found.lo, found.q - P);
    const high = roundToF32(found.hi, found.q - P);
    if (Object.is(low, high)) return low;
  }
  throw new Error("no scale decides this value");
}

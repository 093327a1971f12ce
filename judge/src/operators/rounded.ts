/** `rounded/1` (NUMERICS 13, OPENING 8): an element is R of the exact sum of its terms. */
import { bitsOf, numberOf, type Bits } from "../numbers/bits.ts";
import { exactly, roundToGrid, type Dyadic } from "../numbers/rounding.ts";
import type { Reading } from "./call.ts";
import { CHUNK } from "./parts.ts";
import { refusing, type Chain, type Local } from "./quantity.ts";
import { following, lastTerm, type SumElement } from "./sums.ts";

/** Bits of the record's whole number (NUMERICS 13.5); the byte of flags follows. */
const WIDTH = 632;
const FLAGS = { nan: 1n, positive: 2n, negative: 4n } as const;
/** The sum is in units of 2^−298. */
const UNIT = -298;

/** The byte of flags of a record. */
export const flagsOf = (record: Bits): bigint => record >> BigInt(WIDTH);

/** The real number S·2^−298 of a record. */
export const sumOfRecord = (record: Bits): Dyadic => ({
  n: BigInt.asIntN(WIDTH, record),
  q: UNIT,
});

/** The record after one more term (OPENING 8.5): a product of two f32 is exact in binary64. */
function withTerm(record: Bits, term: number): Bits {
  const flags = flagsOf(record);
  const sum = BigInt.asUintN(WIDTH, record);
  if (!Number.isFinite(term)) {
    const flag = Number.isNaN(term) ? FLAGS.nan : term > 0 ? FLAGS.positive : FLAGS.negative;
    return ((flags | flag) << BigInt(WIDTH)) | sum;
  }
  const { n, q } = exactly(term);
  // A term is a multiple of the unit: where this shifts to the right, zeros are shifted out.
  const units = n << BigInt(q - UNIT);
  return (flags << BigInt(WIDTH)) | BigInt.asUintN(WIDTH, sum + units);
}

/** R of a record (OPENING 8.5.1, NUMERICS 13.4). */
export function roundedRecord(record: Bits, B: number): number {
  const flags = flagsOf(record);
  const [up, down] = [(flags & FLAGS.positive) !== 0n, (flags & FLAGS.negative) !== 0n];
  if ((flags & FLAGS.nan) !== 0n || (up && down)) return NaN;
  if (up) return Infinity;
  if (down) return -Infinity;
  const { n, q } = sumOfRecord(record);
  return roundToGrid(n, q, B);
}

/** The chain "exact sum": 128 terms a link, the last term among them. */
export function exactSum(element: SumElement): Chain {
  const { opened, sum } = element;
  const length = opened.count(sum.count);
  const last = lastTerm(element);
  const links = function* (low: number, high: number, state: Bits): Reading<Bits> {
    let record = state;
    for (let link = low; link < high; link++) {
      const end = CHUNK * (link + 1);
      for (const term of yield* termsOf(element, CHUNK * link, Math.min(end, length))) {
        record = withTerm(record, term);
      }
      if (last !== undefined && length < end) {
        record = withTerm(record, Number(yield* opened.evaluation().single(last)));
      }
    }
    return record;
  };
  return {
    kind: "chain",
    dtype: "acc",
    name: "exact sum",
    needs: [],
    count: Math.ceil((length + (last === undefined ? 0 : 1)) / CHUNK),
    stretch: 1,
    weight: CHUNK,
    start: 0n,
    links: (low, high, state) => refusing(links(low, high, state)),
  };
}

/** The terms first to last − 1 as numbers: products of a DOT, else the elements. */
export function* termsOf(
  { opened, sum }: SumElement,
  first: number,
  last: number,
): Reading<number[]> {
  if (sum.kind === "tree") {
    return (yield* opened.summands(sum, first, last)).map((bits) => Number(numberOf("f32", bits)));
  }
  const [a, b] = yield* opened.factors(sum, first, last);
  return a.map((x, k) => x * (b[k] ?? 0));
}

/** The quantity of an element of a rounded operator under `rounded/1` (OPENING 8.3). */
export function roundedQuantity(element: SumElement, B: number): Local {
  const value = function* (record: Bits): Reading<Bits> {
    const rounded = bitsOf("f32", roundedRecord(record, B));
    return lastTerm(element) === undefined ? yield* following(element, rounded) : rounded;
  };
  return {
    kind: "local",
    dtype: "f32",
    name: "R(exact sum)",
    needs: [exactSum(element)],
    value: ([record = 0n]) => refusing(value(record)),
  };
}

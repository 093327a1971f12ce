/** `replay/1` in its bounded form (NUMERICS 14.2 to 14.8, OPENING 8.3, 8.6, 8.7). */
import { bitsOf, numberOf, type Bits } from "../numbers/bits.ts";
import { exactly, type Dyadic } from "../numbers/rounding.ts";
import type { Reading } from "./call.ts";
import { Grid, minusOf, sumOf } from "./grid.ts";
import { refusing, type Logged, type Reach, type Tree } from "./quantity.ts";
import { exactSum, flagsOf, roundedRecord, sumOfRecord, termsOf } from "./rounded.ts";
import { following, lastTerm, type SumElement } from "./sums.ts";

/** C of NUMERICS 14.4. */
const C = 0x100001 * 2 ** -73;
/** What stands for a bound that is no number (OPENING 8.6.2). */
const LARGEST = Number.MAX_VALUE;

/** E of NUMERICS 14.4 from the agreed sums; `last` is the last term, if there is one. */
export function boundOf(K: number, sums: readonly number[], last?: number): number {
  const each = K * C;
  const [A = 0, B] = sums;
  let found = B === undefined ? each * A : each * Math.sqrt(A) * Math.sqrt(B);
  if (last !== undefined) found += each * Math.abs(last);
  return found >= 0 && found < Infinity ? found : LARGEST;
}

/** A sum of squares or magnitudes in binary64, with the reads of all its term's factors. */
function sum64(
  element: SumElement,
  name: string,
  values: (first: number, last: number) => Reading<readonly number[]>,
): Tree {
  const terms = function* (first: number, last: number): Reading<Bits[]> {
    return (yield* values(first, last)).map((x) => bitsOf("f64", x));
  };
  return {
    kind: "tree",
    dtype: "f64",
    name,
    needs: [],
    count: element.opened.count(element.sum.count),
    terms: (first, last) => refusing(terms(first, last)),
  };
}

/** The sums that a bound is made of (OPENING 8.3, 8.4). */
export function boundSums(element: SumElement): Tree[] {
  const { opened, sum } = element;
  if (sum.kind === "tree") {
    const sizes = function* (first: number, last: number): Reading<number[]> {
      return (yield* termsOf(element, first, last)).map(Math.abs);
    };
    return [sum64(element, "SUM64(|x|)", sizes)];
  }
  return ([0, 1] as const).map((side) => {
    const squares = function* (first: number, last: number): Reading<number[]> {
      const factors = yield* opened.factors(sum, first, last);
      return factors[side].map((x) => x * x);
    };
    return sum64(element, side === 0 ? "SUM64(a*a)" : "SUM64(b*b)", squares);
  });
}

/** What entries may make of an element (OPENING 8.6, 8.7). */
function* reachOf(element: SumElement, B: number, needs: readonly Bits[]): Reading<Reach> {
  const [record = 0n, ...sums] = needs;
  const last = lastTerm(element);
  const after = function* (value: number): Reading<Bits> {
    const bits = bitsOf("f32", value);
    return last === undefined ? yield* following(element, bits) : bits;
  };
  if (flagsOf(record) !== 0n) {
    const only = yield* after(roundedRecord(record, B));
    return { form: "bounded", isChoice: false, due: () => only, isForged: () => true };
  }
  const { opened, sum } = element;
  const grid = new Grid(B);
  const v: Dyadic = sumOfRecord(record);
  const added = last === undefined ? undefined : Number(yield* opened.evaluation().single(last));
  const K = opened.count(sum.count) + (added === undefined ? 0 : 1);
  const E = exactly(
    boundOf(
      K,
      sums.map((bits) => Number(numberOf("f64", bits))),
      added,
    ),
  );
  const low = grid.nearest(sumOf(v, minusOf(E)));
  const high = grid.nearest(sumOf(v, E));
  const nearest = grid.nearest(v);
  const isChoice = high === low + 1;
  const values = new Map<number, Bits>();
  for (const count of isChoice ? [low, high] : [nearest]) {
    values.set(count, yield* after(grid.element(count)));
  }
  return {
    form: "bounded",
    isChoice,
    due: (entry) => {
      const count = !isChoice || entry === undefined ? nearest : entry === 0 ? low : high;
      return values.get(count) ?? 0n;
    },
    isForged: (entry) =>
      !isChoice && grid.readsFar(nearest, entry === 0 ? 1 : -1, v, { n: 3n * E.n, q: E.q }),
  };
}

/** The quantity of an element of a rounded operator under a log of the bounded form. */
export function boundedQuantity(element: SumElement, B: number): Logged {
  return {
    kind: "logged",
    dtype: "f32",
    name: "R(exact sum)",
    needs: [exactSum(element), ...boundSums(element)],
    reach: (needs) => refusing(reachOf(element, B, needs)),
  };
}

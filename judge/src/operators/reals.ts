/** The table's primitives on pairs: a formula that is lifted to the real numbers (OPENING 9.3, 10). */
import { max, min } from "../numbers/binary32.ts";
import type { Scalar } from "../numbers/bits.ts";
import { FUNCTIONS, minus, negated, over, Pair, plus, times } from "../numbers/pairs.ts";
import { isSet, primitive } from "./primitives.ts";
import type { NodeDtype } from "./table.ts";

type Value = Scalar | Pair;

const valueOf = (value: Value): Scalar => (value instanceof Pair ? value.x : value);
const pairOf = (value: Value): Pair => (value instanceof Pair ? value : new Pair(Number(value)));

const OPERATIONS: Readonly<Record<string, (a: Pair, b: Pair, c: Pair) => Pair>> = {
  add: plus,
  sub: minus,
  mul: times,
  div: over,
  // Two operations (OPENING 9.3.1).
  fma: (a, b, c) => plus(times(a, b), c),
  neg: negated,
  abs: (a) => new Pair(Math.abs(a.x), a.e),
  // Of operands, whose bound is 0, and of a number and an attribute (OPENING 9.3.4).
  max: (a, b) => new Pair(max(a.x, b.x), a.e + b.e),
  min: (a, b) => new Pair(min(a.x, b.x), a.e + b.e),
};

/** A primitive whose result is a number or a truth value. */
export function realPrimitive(kind: string, dtype: NodeDtype, of: readonly Value[]): Value {
  const [a = 0, b = 0, c = 0] = of;
  if (kind === "select") return isSet(valueOf(a)) ? b : c;
  if (dtype === "bool") return primitive(kind, dtype, of.map(valueOf));
  // A count n stays n; RN32 and RN64 of a result are the result (OPENING 9.3.1).
  if (kind === "convert") return a instanceof Pair ? a : Number(a);
  // D and max(n − 1, 0) of binary64 are the same numbers as ever (OPENING 9.3.1).
  if (dtype === "f64" && !of.some((one) => one instanceof Pair)) {
    return primitive(kind, dtype, of.map(valueOf));
  }
  const operation = OPERATIONS[kind];
  if (operation) return operation(pairOf(a), pairOf(b), pairOf(c));
  const named = FUNCTIONS[kind];
  if (named === undefined) throw new Error(`no ${kind} of real numbers`);
  return named(pairOf(a));
}

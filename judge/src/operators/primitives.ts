/** The primitives of the table (vectors/operators.md: Nodes) on single numbers. */
import * as binary32 from "../numbers/binary32.ts";
import type { Scalar } from "../numbers/bits.ts";
import { ELEMENTARY, elementary, type Elementary } from "../numbers/elementary.ts";
import { power } from "../numbers/power.ts";
import { roundToF32 } from "../numbers/rounding.ts";
import { floorDiv, floorMod, shiftLeft, shiftRight, wrap64 } from "../numbers/whole.ts";
import type { NodeDtype } from "./table.ts";

type On<T> = (a: T, b: T, c: T) => T;

const BINARY32: Readonly<Record<string, On<number>>> = {
  add: binary32.add32,
  sub: binary32.sub32,
  mul: binary32.mul32,
  div: binary32.div32,
  sqrt: binary32.sqrt32,
  fma: binary32.fma32,
  max: binary32.max,
  min: binary32.min,
  pow: power,
};

const FLOATS: Readonly<Record<string, On<number>>> = {
  neg: (a) => -a,
  abs: (a) => Math.abs(a),
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  sqrt: (a) => Math.sqrt(a),
};

const WHOLE: Readonly<Record<string, On<bigint>>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  max: (a, b) => (a > b ? a : b),
  min: (a, b) => (a < b ? a : b),
  over: floorDiv,
  rest: floorMod,
  and: (a, b) => a & b,
  or: (a, b) => a | b,
  xor: (a, b) => a ^ b,
  not: (a) => ~a,
  floor_divide: floorDiv,
  left_shift: shiftLeft,
  right_shift: shiftRight,
};

const COMPARISONS: Readonly<Record<string, (a: Scalar, b: Scalar) => boolean>> = {
  eq: (a, b) => a === b,
  ne: (a, b) => a !== b,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
};

const LOGIC: Readonly<Record<string, (a: boolean, b: boolean) => boolean>> = {
  and: (a, b) => a && b,
  or: (a, b) => a || b,
  xor: (a, b) => a !== b,
  not: (a) => !a,
};

const isElementary = (kind: string): kind is Elementary =>
  (ELEMENTARY as readonly string[]).includes(kind);

/** Whether a truth value, or a number that stands for one, is set. */
export const isSet = (x: Scalar): boolean => x !== 0 && x !== 0n;

/** The primitive `kind`, whose result is of `dtype`, of at most three numbers. */
export function primitive(kind: string, dtype: NodeDtype, of: readonly Scalar[]): Scalar {
  const [a = 0, b = 0, c = 0] = of;
  if (kind === "select") return isSet(a) ? b : c;
  if (kind === "convert") return converted(dtype, a);
  if (dtype === "f32" || dtype === "f64") {
    if (isElementary(kind)) return elementary(kind, Number(a));
    const on = (dtype === "f32" ? BINARY32[kind] : undefined) ?? FLOATS[kind];
    if (on) return on(Number(a), Number(b), Number(c));
  } else if (dtype === "bool") {
    const compare = COMPARISONS[kind];
    if (compare) return Number(compare(a, b));
    const logic = LOGIC[kind];
    if (logic) return Number(logic(isSet(a), isSet(b)));
  } else {
    const on = WHOLE[kind];
    if (on) {
      const found = on(BigInt(a), BigInt(b), BigInt(c));
      return dtype === "i64" ? wrap64(found) : found;
    }
  }
  throw new Error(`no primitive ${kind} of ${dtype}`);
}

/**
 * NUMERICS 10.7: a whole number is rounded once, binary64 by RN32, a float truncated. A float that
 * no i64 has is refused before (OPENING 5.6); here it is 0.
 */
function converted(dtype: NodeDtype, x: Scalar): Scalar {
  if (dtype === "bool") return Number(isSet(x));
  if (dtype === "f64") return Number(x);
  if (dtype === "f32") return typeof x === "bigint" ? roundToF32(x, 0) : Math.fround(x);
  if (dtype === "moved") throw new Error("an element that is moved is not converted");
  const whole = typeof x === "bigint" ? x : BigInt(Number.isFinite(x) ? Math.trunc(x) : 0);
  if (dtype === "i64") return wrap64(whole);
  if (dtype === "i32") return Number(BigInt.asIntN(32, whole));
  if (dtype === "u8") return Number(BigInt.asUintN(8, whole));
  return whole;
}

/** Attributes of a node (NUMERICS 15), and the conditions on them that the table of operators has. */
import { roundToF64 } from "../numbers/rounding.ts";

/**
 * An attribute's value. Its kind shows in its type: int a bigint, float a number, str and dtype a
 * string, ints an array of bigints, bools an array of booleans (NUMERICS 15.1).
 */
export type Attribute = bigint | number | string | boolean | readonly bigint[] | readonly boolean[];

export type Attributes = ReadonlyMap<string, Attribute>;

const HEXADECIMAL = /^(-?)0x([0-9a-f]+)(?:\.([0-9a-f]+))?p([+-]?[0-9]{1,5})$/;

/** The binary64 number of C99 hexadecimal digits, `inf`, `-inf` or `nan`; undefined of other text. */
export function floatOfText(text: string): number | undefined {
  if (text === "nan") return NaN;
  if (text === "inf") return Infinity;
  if (text === "-inf") return -Infinity;
  const [, sign, first, rest = "", power] = HEXADECIMAL.exec(text) ?? [];
  if (first === undefined) return undefined;
  const size = roundToF64(BigInt(`0x${first}${rest}`), Number(power) - 4 * rest.length);
  return sign === "-" ? -size : size;
}

/** What a condition asks: that an attribute equals something, or that a name is there. */
export type Condition =
  { readonly is: string; readonly equal: string | boolean | bigint } | { readonly has: string };

/**
 * Whether a condition holds. A float is compared as the binary64 number (NUMERICS 1.9), so −0 is
 * +0 and a NaN is nothing; an attribute that is not there equals nothing.
 */
export function holds(
  condition: Condition,
  attributes: Attributes,
  operands: ReadonlySet<string>,
): boolean {
  if ("has" in condition) return operands.has(condition.has) || attributes.has(condition.has);
  const held = attributes.get(condition.is);
  const { equal } = condition;
  if (typeof held !== "number") return held === equal;
  return typeof equal === "string" ? held === floatOfText(equal) : held === Number(equal);
}

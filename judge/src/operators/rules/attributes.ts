/** Attributes of a node against the operator's (NUMERICS 15.1, 15.2, PROGRAM 2.5). */
import { refuse } from "../../errors.ts";
import { isStored, WIDTH } from "../../numbers/bits.ts";
import type { Attribute, Attributes } from "../attributes.ts";
import type { AttributeRule, Operator } from "../table.ts";

const isInt = (value: unknown): boolean =>
  typeof value === "bigint" && BigInt.asIntN(64, value) === value;
const isBool = (value: unknown): boolean => typeof value === "boolean";

/** An empty list is of both kinds of lists. */
const KINDS: Readonly<Record<AttributeRule["kind"], (value: Attribute) => boolean>> = {
  int: isInt,
  float: (value) => typeof value === "number",
  bool: isBool,
  str: (value) => typeof value === "string",
  ints: (value) => Array.isArray(value) && value.every(isInt),
  bools: (value) => Array.isArray(value) && value.every(isBool),
  // No operator makes a stored type (NUMERICS 1.14).
  dtype: (value) => typeof value === "string" && Object.hasOwn(WIDTH, value) && !isStored(value),
};

/** Refuses attributes that are not the operator's, all of them, in the bytewise order of names. */
export function checkAttributes(operator: Operator, attributes: Attributes): void {
  const { name: whose, attributes: rules } = operator;
  let before = "";
  for (const [name, value] of attributes) {
    const rule = rules.get(name);
    if (rule === undefined) throw refuse(`${whose} has no attribute ${name}`);
    if (name < before) throw refuse(`${whose} has ${name} after ${before}, out of order`);
    before = name;
    if (!KINDS[rule.kind](value))
      throw refuse(`${whose} has ${name} that is not of kind ${rule.kind}`);
  }
  for (const [name, { optional }] of rules) {
    if (!optional && !attributes.has(name)) throw refuse(`${whose} needs an attribute ${name}`);
  }
}

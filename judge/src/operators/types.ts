/**
 * Types of a node's outputs (NUMERICS 15 and 16), which a reader of programs infers and compares
 * with those stated (PROGRAM 3.2). Dtypes are those that the table of operators has; shapes, and
 * what else a call must be, are the rules of the specification. No contract changes them.
 */
import { refuse } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { isStored, WIDTH, type Dtype } from "../numbers/bits.ts";
import type { Attributes } from "./attributes.ts";
import type { TensorType } from "./call.ts";
import { partsOf } from "./element.ts";
import { formOf } from "./forms.ts";
import { ATTENTION } from "./rules/attention.ts";
import { checkAttributes } from "./rules/attributes.ts";
import { DOT } from "./rules/dot.ts";
import { LAYERS } from "./rules/layers.ts";
import { MOVES } from "./rules/moves.ts";
import { fits, Node, product, textOf, type Rule, type Shape } from "./rules/node.ts";
import { elementwise, OTHERS } from "./rules/others.ts";
import { QUANTISED } from "./rules/quantised.ts";
import { REDUCTIONS } from "./rules/reductions.ts";
import type { Operator, OperatorTable } from "./table.ts";

type Operands = readonly (TensorType | null)[];

/** NUMERICS 12.1: it computes nothing, and is not in the table. */
export const COMMIT = "tallystick.commit";

const RULES = new Map<string, Rule>(
  [DOT, REDUCTIONS, LAYERS, MOVES, ATTENTION, QUANTISED, OTHERS].flatMap((rules) =>
    Object.entries(rules),
  ),
);

/**
 * The types of the outputs that exist; a call that is none of the operator's is refused. The
 * attributes are in the order of the text; an operand that is absent is null, or left out.
 */
export function inferTypes(
  table: OperatorTable,
  name: string,
  attributes: Attributes,
  operands: Operands,
): TensorType[] {
  if (operands.length > LIMITS.nodeInputs) throw refuse(`${name} has too many operands`);
  for (const type of operands) {
    if (type !== null) checkType(type.dtype, type.shape.map(BigInt));
  }
  if (name === COMMIT) {
    if (attributes.size > 0) throw refuse(`${name} has no attributes`);
    if (operands.includes(null)) throw refuse(`${name} has an absent operand`);
    return [];
  }
  const operator = table.get(name);
  if (operator === undefined) throw refuse(`there is no operator ${name}`);
  checkAttributes(operator, attributes);
  checkOperands(operator, operands);
  const dtypes = dtypesOf(operator, attributes, operands);
  const rule = RULES.get(name) ?? (operator.forms && elementwise);
  if (rule === undefined) throw refuse(`${name} has no rule of types`);
  const shapes = rule(new Node(operator, attributes, operands));
  const mask = maskOf(operator, attributes, shapes.length);
  return shapes.flatMap((shape, k) => {
    const dtype = dtypes[k];
    if (dtype === undefined) throw refuse(`${name} has no output ${k}`);
    return mask[k] === false ? [] : [checkType(dtype, shape)];
  });
}

/** A tensor's type, if it is within the limits of COMMITMENTS 11.1. */
export function checkType(dtype: Dtype, shape: Shape): TensorType {
  const most = BigInt(LIMITS.tensorBytes);
  if (shape.length > LIMITS.tensorRank) throw refuse(`a tensor has ${shape.length} axes`);
  if (shape.some((size) => size < 0n || size > most)) {
    throw refuse(`a tensor has a size that is none: ${textOf(shape)}`);
  }
  if (product(shape) * BigInt(WIDTH[dtype]) > most) {
    throw refuse(`a tensor is too large: ${dtype}${textOf(shape)}`);
  }
  return { dtype, shape: shape.map(Number) };
}

/** How many operands there are, and which are absent (NUMERICS 16.1). */
function checkOperands({ name, operands, optional, repeated }: Operator, given: Operands): void {
  if (repeated ? given.length < operands.length : given.length > operands.length) {
    throw refuse(`${name} has ${given.length} operands`);
  }
  if (repeated && given.includes(null)) throw refuse(`${name} has an absent operand`);
  operands.forEach((operand, k) => {
    const isAbsent = (given[k] ?? null) === null;
    if (isAbsent && !optional.has(operand)) throw refuse(`${name} needs its operand ${operand}`);
  });
}

/** Operands whose dtype is another than that of the operator's first one. */
const OWN = new Map<string, Dtype>([
  ["index", "i64"],
  ["target", "i64"],
  ["mask", "bool"],
  ["condition", "bool"],
]);

/** What takes bf16 and f16 (NUMERICS 1.14), beside the commit node. */
const TAKES_STORED: ReadonlySet<string> = new Set([
  "aten.view",
  "aten.permute",
  "aten.slice",
  "aten.index_select",
  "aten._to_copy",
]);

/** The dtypes of all outputs, from the table; operands and floats of other dtypes are refused. */
function dtypesOf(operator: Operator, attributes: Attributes, operands: Operands): Dtype[] {
  const { name } = operator;
  const stated = attributes.get("dtype") as Dtype | undefined;
  const call = { operator, attributes, operands, outputs: outputsOf(stated) };
  const lead = operands.find((_, k) => !OWN.has(nameOf(operator, k)))?.dtype;
  const held = stated ?? lead ?? "f32";
  const form = formOf(call);
  const parts = partsOf(call);
  const dtypes = operands.map((type) => type?.dtype ?? "none").join(", ");
  if (form === undefined && parts === undefined) {
    throw refuse(`${name} is not defined for ${dtypes === "" ? held : dtypes}`);
  }
  operands.forEach((type, k) => {
    const operand = nameOf(operator, k);
    const due = form ? (form.dtypes[k] ?? "f32") : (OWN.get(operand) ?? lead);
    if (type !== null && type.dtype !== due) {
      throw refuse(`${name} has ${operand} of dtype ${type.dtype}, not ${due ?? "none"}`);
    }
  });
  if (!TAKES_STORED.has(name) && operands.some((type) => type !== null && isStored(type.dtype))) {
    throw refuse(`${name} is not defined for ${dtypes}`);
  }
  // The one operator of data movement that is on f32 alone (16.6).
  if (name === "aten.embedding" && lead !== "f32")
    throw refuse(`${name} is not defined on ${held}`);
  checkScalars(operator, attributes, held);
  const found = form
    ? form.outputs.map((root) => form.nodes[root]?.dtype)
    : parts?.outputs.map((root) => parts.parts[root]?.dtype);
  return (found ?? []).map((dtype) => {
    if (dtype === undefined || dtype === "index") throw new Error(`${name} has no dtype`);
    return dtype === "moved" ? held : dtype;
  });
}

/** What `partsOf` looks at where there are no operands: the output has the attribute's dtype. */
const outputsOf = (dtype: Dtype | undefined): TensorType[] =>
  dtype === undefined ? [] : [{ dtype, shape: [] }];

const nameOf = ({ operands, repeated }: Operator, k: number): string =>
  operands[repeated ? Math.min(k, operands.length - 1) : k] ?? "";

/** The attributes of NUMERICS 10.1, 9.1 and 9.2, which the tensor's dtype must hold. */
const SCALARS = ["other", "alpha", "min", "max", "value", "start", "end", "step"];

function checkScalars({ name }: Operator, attributes: Attributes, dtype: Dtype): void {
  for (const scalar of SCALARS) {
    const value = attributes.get(scalar);
    if (typeof value === "number" && !fits(dtype, value)) {
      throw refuse(`${name} has ${scalar} that ${dtype} does not hold`);
    }
  }
}

/** Which outputs exist (NUMERICS 15.3). */
function maskOf(operator: Operator, attributes: Attributes, count: number): readonly unknown[] {
  if (operator.maskedBy === undefined) return [];
  const mask = attributes.get(operator.maskedBy);
  if (!Array.isArray(mask) || mask.length !== count) {
    throw refuse(`${operator.name} has ${operator.maskedBy} that is not of ${count}`);
  }
  return mask;
}

/** The quantity that an element of an output is (OPENING 6), from the table of operators. */
import type { Attributes } from "./attributes.ts";
import type { Call, TensorType } from "./call.ts";
import { boundedQuantity } from "./bounded.ts";
import { formOf, ofForm } from "./forms.ts";
import { exactQuantity } from "./exact.ts";
import { Opened } from "./parts.ts";
import { formPair, loggedPair, loggedSum, partPair } from "./published.ts";
import type { Quantity } from "./quantity.ts";
import { roundedQuantity } from "./rounded.ts";
import { sumElement } from "./sums.ts";
import type { Operator, Parts } from "./table.ts";

/** An element of a node's output. */
export interface Element {
  readonly call: Call;
  /** Its number among the outputs that exist. */
  readonly output: number;
  /** Row-major. */
  readonly position: number;
}

/** A call from what a program says of a node. */
export const callOf = (
  operator: Operator,
  attributes: Attributes,
  operands: readonly (TensorType | null)[],
  outputs: readonly TensorType[],
): Call => ({ operator, attributes, operands, outputs });

/** The parts for a call: those of its first operand's dtype, else those of what is moved. */
export function partsOf({ operator, operands, outputs }: Call): Parts | undefined {
  const first = operands.find((type) => type !== null) ?? outputs[0];
  const own = first && operator.parts?.get(first.dtype);
  return own ?? operator.parts?.get("moved");
}

/** The part that an output is: `masked_by` leaves out those that the attribute does not have. */
export function partOf(call: Call, parts: Parts, output: number): number {
  const mask = call.operator.maskedBy && call.attributes.get(call.operator.maskedBy);
  const there = parts.outputs.filter((_, k) => !Array.isArray(mask) || mask[k] === true);
  const found = there[output];
  if (found === undefined) throw new Error(`${call.operator.name} has no output ${output}`);
  return found;
}

/**
 * A contract's family, and the bits B that it keeps (NUMERICS 13.1, 14.1, 17.1); `bounded` and
 * `published` are the forms of replay/1.
 */
export type Contract =
  | { readonly family: "ordered" }
  | { readonly family: "rounded"; readonly B: number }
  | { readonly family: "bounded"; readonly B: number }
  | { readonly family: "published"; readonly B: number }
  | { readonly family: "exact"; readonly B: number };

/** The element's quantity; undefined where it has none (OPENING 6.4, or a call that does not fit). */
export function quantityOf(contract: Contract, element: Element): Quantity | undefined {
  const { call, output, position } = element;
  const form = formOf(call);
  // OPENING 9.1: of data movement and folds, and of other dtypes, an element is that of ordered/1.
  const isReal =
    contract.family === "published" &&
    call.outputs[output]?.dtype === "f32" &&
    !["move", "fold"].includes(call.operator.class);
  if (form !== undefined && isReal) {
    return loggedPair(formPair(call, form, output, BigInt(position)), contract.B);
  }
  if (form !== undefined) return ofForm(call, form, output, BigInt(position));
  const parts = partsOf(call);
  if (parts === undefined) return undefined;
  const opened = new Opened(call, parts, output, BigInt(position));
  const number = partOf(call, parts, output);
  const sum = contract.family === "ordered" ? undefined : sumElement(opened, number);
  if (isReal) {
    const isExact = sum !== undefined && call.operator.rounded === "sum";
    return isExact ? loggedSum(sum, contract.B) : loggedPair(partPair(opened, number), contract.B);
  }
  if (sum !== undefined && call.operator.rounded !== undefined) {
    if (contract.family === "rounded") return roundedQuantity(sum, contract.B);
    if (contract.family === "bounded") return boundedQuantity(sum, contract.B);
  }
  if (sum?.sum.kind === "dot" && contract.family === "exact") {
    return exactQuantity(sum, sum.sum, contract.B);
  }
  return opened.quantity(number);
}

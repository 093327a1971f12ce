/** What a disputed input is by the job (PROTOCOL 5.6): a value of its data, or a setting. */

import { SCALAR } from "../job/inputs.ts";
import type { Terms } from "../job/terms.ts";
import type { Found } from "./judged.ts";

export type Disputed =
  | { readonly what: "record"; readonly field: string; readonly record: number }
  | { readonly what: "setting"; readonly name: string; readonly value: number };

/** The job's own data or setting that was in dispute; null where it was something else. */
export function disputedOf(found: Found, terms: Terms): Disputed | null {
  const { step, node, operand, side, element } = found;
  if (step === null || node === null || operand === null || side !== "input") return null;
  const own = terms.step(step);
  const { program } = own;
  // COMMIT, the last node, is none of the program's text.
  if (node >= program.nodeCount - 1) return null;
  const source = program.node(node).operands[operand];
  if (source?.from !== "input") return null;
  const { name } = source;
  const { kind, type } = program.input(name);
  if (kind === "scalar" && found.case === "2d") {
    return { what: "setting", name: name.slice(SCALAR.length), value: own.scalar(name) };
  }
  if (kind !== "batch" || found.case !== "2c" || element === null) return null;
  const { first, field } = program.batchInput(name);
  const each = type.shape.slice(1).reduce((product, extent) => product * extent, 1);
  return { what: "record", field, record: own.record(first + Math.floor(element / each)) };
}

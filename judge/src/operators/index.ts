/**
 * What the game below an element (OPENING 4) needs of operators:
 *
 *     const table = readTable(JSON.parse(text));
 *     const call = callOf(operator, attributes, operands, outputs);
 *     const quantity = quantityOf(contract, { call, output, position });
 *
 *     const types = inferTypes(table, name, attributes, operands); // NUMERICS 16, or RefusedError
 *
 * A quantity has its kind, dtype, name, needs and counts. Its readings yield reads, and are sent the
 * bits of the elements read; a refusal (OPENING 5.4) is one of their outcomes. Values are bits.
 */
export { floatOfText, type Attribute, type Attributes } from "./attributes.ts";
export type { Call, Read, Reading, TensorType } from "./call.ts";
export { callOf, quantityOf, type Contract, type Element } from "./element.ts";
export {
  better,
  BLOCK,
  blockOf,
  isRefusal,
  type Chain,
  type Direction,
  type Entry,
  type Extremum,
  type Local,
  type Logged,
  type Outcome,
  type PublishedReach,
  type Quantity,
  type QuantityDtype,
  type Reach,
  type Refusal,
  type Terms,
  type Tree,
  type WithoutReach,
} from "./quantity.ts";
export { readTable } from "./read.ts";
export type { Operator, OperatorTable } from "./table.ts";
export { checkType, COMMIT, inferTypes } from "./types.ts";

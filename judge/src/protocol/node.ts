/** The node that a game has come to, with what both parties have agreed on of its step. */
import type { Terms } from "../job/terms.ts";
import { callOf, type Call } from "../operators/index.ts";
import type { ProgramNode, StepProgram } from "../program/program.ts";
import type { Found } from "./found.ts";
import { Openings, type AgreedOperand } from "./opening.ts";
import type { NodeForm } from "./records.ts";
import type { Both } from "./rounds.ts";

/** A step of the run that is disputed. */
export interface StepContext {
  readonly terms: Terms;
  readonly step: number;
  readonly program: StepProgram;
  /** Each party's root of state[t]: the agreed one, or its own after 6.14. */
  readonly before: Both<Uint8Array>;
  /** Each party's own root of state[t + 1]. */
  readonly after: Both<Uint8Array>;
  readonly found: Found;
}

/** A node of the step whose operands' digests are agreed on. */
export interface NodeContext extends StepContext {
  readonly node: number;
  readonly operands: readonly (AgreedOperand | null)[];
}

/** The call that a node of the program is. */
export const callOfNode = (node: ProgramNode): Call =>
  callOf(node.operator, node.attributes, node.operandTypes, node.outputs);

/** The operands of a node by the digests of its record, which skips absent ones (PROTOCOL 2.2). */
export function agreedOperands(
  { operandTypes }: Pick<NodeForm, "operandTypes">,
  digests: readonly Uint8Array[],
): (AgreedOperand | null)[] {
  const given = digests.values();
  return operandTypes.map(
    (type) => type && { type, digest: given.next().value ?? new Uint8Array() },
  );
}

/** The operands of the node, none of them open yet. */
export const openingsOf = ({ step, node, operands }: NodeContext): Openings =>
  new Openings(step, node, operands);

/** Records of nodes and what the program says about them (PROTOCOL 5.3, 5.5.2, COMMITMENTS 5.7). */
import { equalBytes } from "../bytes.ts";
import { nodeDigest, treeByNode, type NodeRecord } from "../nodes.ts";
import { leafHash } from "../merkle.ts";
import type { ProgramNode, Source, StepProgram } from "../program/program.ts";
import { CHAIN_TYPE, COMMIT, commitAttributes, LOG_CHAIN, LOSS_CHAIN } from "../state.ts";
import type { TensorType } from "../tensors.ts";
import type { Terms } from "../job/terms.ts";
import type { ProvedNode } from "./bodies.ts";

/** A node as a record of it must be; COMMIT is one too. */
export interface NodeForm {
  readonly operator: string;
  readonly attributes: Uint8Array;
  /** Absent operands are null. */
  readonly operands: readonly (Source | null)[];
  readonly operandTypes: readonly (TensorType | null)[];
  /** COMMIT's last output is a state root, which is no tensor. */
  readonly outputs: number;
}

const LOSS_TYPE: TensorType = { dtype: "f32", shape: [] };
const COMMIT_OUTPUTS = 3;

export const commitIndex = (program: StepProgram): number => program.nodeCount - 1;

/** The COMMIT node (COMMITMENTS 5.7): slots, then the loss and both chains. */
function commitForm(program: StepProgram, slots: Terms["slots"]): NodeForm {
  const names = program.nextStates.map(({ slot }) => slot);
  const chains = [LOSS_CHAIN, LOG_CHAIN].map((name): Source => ({ from: "input", name }));
  return {
    operator: COMMIT,
    attributes: commitAttributes(names),
    operands: [...program.nextStates.map(({ value }) => value), program.loss, ...chains],
    operandTypes: [
      ...names.map((name) => slots.get(name) ?? null),
      LOSS_TYPE,
      CHAIN_TYPE,
      CHAIN_TYPE,
    ],
    outputs: COMMIT_OUTPUTS,
  };
}

const formOfNode = (node: ProgramNode): NodeForm => ({
  operator: node.operator.name,
  attributes: node.attributeBytes,
  operands: node.operands,
  operandTypes: node.operandTypes,
  outputs: node.outputs.length,
});

/** COMMIT's forms: of a job of many slots one is dear, and every query asks for it. */
const COMMITS = new WeakMap<StepProgram, NodeForm>();

export function formOf(program: StepProgram, slots: Terms["slots"], index: number): NodeForm {
  if (index !== commitIndex(program)) return formOfNode(program.node(index));
  const known = COMMITS.get(program) ?? commitForm(program, slots);
  COMMITS.set(program, known);
  return known;
}

/** Whether operator, attributes and numbers of digests are the program's; absent operands do not
 * count (5.5.2). */
export function isOfForm(form: NodeForm, record: NodeRecord): boolean {
  return (
    record.operator === form.operator &&
    equalBytes(record.attributes, form.attributes) &&
    record.inputs.length === form.operands.filter((operand) => operand !== null).length &&
    record.outputs.length === form.outputs
  );
}

/** The leaf of a record in the node tree of a step (COMMITMENTS 4.1, 4.2). */
export const recordLeafHash = (
  program: StepProgram,
  step: number,
  index: number,
  record: NodeRecord,
): Uint8Array => leafHash(nodeDigest(program.digest, step, index, record));

/** Whether the proof that comes with a record gives the root of a node tree. */
export function isInTree(
  program: StepProgram,
  step: number,
  index: number,
  record: ProvedNode,
  root: Uint8Array,
): boolean {
  const digest = nodeDigest(program.digest, step, index, record);
  const found = treeByNode(digest, index, program.nodeCount, record.proof);
  return found !== undefined && equalBytes(found, root);
}

/** The place of each operand's digest in a record, which skips absent ones (2.2). */
export function presentOperands(form: NodeForm): { operand: number; source: Source }[] {
  return form.operands.flatMap((source, operand) => (source === null ? [] : [{ operand, source }]));
}

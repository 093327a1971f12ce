/** A program as one that a run's steps execute (PROGRAM 6.7 to 6.9, COMMITMENTS 7.4). */
import { refuse } from "../errors.ts";
import type { OperatorTable } from "../operators/index.ts";
import { sameType } from "../tensors.ts";
import { attributeBytes } from "./attributes.ts";
import { logFormOf } from "./contract.ts";
import { expansionOf, type Expansion } from "./expansion.ts";
import type { ProgramNode, Source, StepProgram } from "./program.ts";
import type { Program } from "./read.ts";
import { sectionsOf } from "./sections.ts";
import { typeOf, type ProgramText } from "./text.ts";

const LOSS = "loss";

function nodeOf(
  text: ProgramText,
  expansion: Expansion,
  index: number,
  table: OperatorTable,
): ProgramNode {
  const origin = expansion.origin(index);
  const { operator: name, attributes, operands } = expansion.node(index);
  const operator = table.get(name);
  // COMMIT is in no table, and no node of a step program.
  if (operator === undefined) throw refuse(`node ${index} computes nothing`);
  return {
    operator,
    attributes,
    attributeBytes: attributeBytes(attributes),
    operands,
    operandTypes: operandTypes(text, origin.operands, operands.length),
    outputs: origin.outputs,
  };
}

/** The types of operands, which the expansion leaves as they are (6.7 d): those of a fold are alike. */
function operandTypes(
  text: ProgramText,
  sources: readonly (Source | null)[],
  count: number,
): ProgramNode["operandTypes"] {
  const types = sources.map((source) => source && typeOf(text, source));
  if (types.length === count) return types;
  const [type = null] = types;
  return Array.from({ length: count }, () => type);
}

/** The program for V micro-batches. It must have a next state and a loss (COMMITMENTS 7.4). */
export function stepProgramOf(program: Program, V: number, table: OperatorTable): StepProgram {
  const { text, contract, digest } = program;
  const expansion = expansionOf(text, V, table);
  const loss = text.outputs.find(({ name }) => name === LOSS)?.value;
  if (loss === undefined || !sameType(typeOf(text, loss), { dtype: "f32", shape: [] })) {
    throw refuse("a program without a loss of type f32[]");
  }
  const nextStates = text.outputs
    .filter(({ name }) => text.inputs.get(name)?.kind === "state")
    .map(({ name, value }) => ({ slot: name, value: expansion.value(value) }));
  if (nextStates.length === 0) throw refuse("a program without a next state");
  return {
    digest,
    nodeCount: expansion.nodeCount,
    lastMicroBatch: expansion.lastMicroBatch,
    node: (index) => nodeOf(text, expansion, index, table),
    input: (name) => expansion.input(name),
    batchInput: (name) => expansion.batchInput(name),
    nextStates,
    loss: expansion.value(loss),
    sections: sectionsOf(expansion, logFormOf(contract), table),
  };
}

/** The largest parts of a job, from which the lengths of its longest answers follow (PROTOCOL 8.5). */
import { toUtf8 } from "../bytes.ts";
import type { DataSet, Terms } from "../job/terms.ts";
import { blockCount } from "../logs.ts";
import { inclusionLength } from "../merkle.ts";
import type { StepProgram } from "../program/program.ts";
import { byteLength, LEAF_BYTES, type TensorType } from "../tensors.ts";
import { commitIndex, formOf } from "./records.ts";
import { provedPart, recordLength } from "./sizes.ts";

export interface Extremes {
  readonly slotName: string;
  /** Of a program. */
  readonly nodes: number;
  readonly sections: number;
  /** Of a section. */
  readonly blocks: number;
  /** Of an operand, or of an output that may have no reader. */
  readonly leaves: number;
  readonly leafLength: number;
  /** Of a node's record, without its proof. */
  readonly recordLength: number;
  /** Of a part of the data's records, with its proofs. */
  readonly partLength: number;
}

interface OfNodes {
  readonly tensor: number;
  readonly record: number;
}

/** Nodes of micro-batches before the last one are alike, and name no larger draws (PROGRAM 6.7). */
function ofNodes(program: StepProgram, slots: Terms["slots"]): OfNodes {
  let [tensor, record] = [0, 0];
  const see = (type: TensorType | null): void => {
    if (type !== null) tensor = Math.max(tensor, byteLength(type));
  };
  for (let index = program.lastMicroBatch; index <= commitIndex(program); index++) {
    const form = formOf(program, slots, index);
    record = Math.max(record, recordLength(form));
    form.operandTypes.forEach(see);
    if (index < commitIndex(program)) program.node(index).outputs.forEach(see);
  }
  return { tensor, record };
}

const most = <T>(items: Iterable<T>, of: (item: T) => number): number => {
  let found = 0;
  for (const item of items) found = Math.max(found, of(item));
  return found;
};

/** The longest part of a data set's records; no leaf of a tree lies deeper than the first. */
function longestPart(terms: Terms, { records, schema }: DataSet): number {
  const parts = schema.parts();
  const bytes = most(parts, ({ length }) => length);
  return provedPart(terms, bytes, inclusionLength(0, parts.length), inclusionLength(0, records));
}

export function extremesOf(terms: Terms): Extremes {
  const { data, programs, slots } = terms;
  const found = programs.map((program) => ofNodes(program, slots));
  const bytes = most(found, ({ tensor }) => tensor);
  const name = most(slots.keys(), (slot) => toUtf8(slot).length);
  return {
    slotName: "s".repeat(name),
    nodes: most(programs, ({ nodeCount }) => nodeCount),
    sections: most(programs, ({ sections }) => sections.length),
    blocks: most(
      programs.flatMap(({ sections }) => sections),
      blockCount,
    ),
    leaves: Math.ceil(bytes / LEAF_BYTES),
    leafLength: Math.min(bytes, LEAF_BYTES),
    recordLength: most(found, ({ record }) => record),
    partLength: most(data, (set) => longestPart(terms, set)),
  };
}

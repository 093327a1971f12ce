/** A program of a step, expanded (PROGRAM 1 and 6.7): what commitments and disputes count nodes of. */
import type { LogSection } from "../logs.ts";
import type { Attributes, Operator } from "../operators/index.ts";
import type { TensorType } from "../tensors.ts";

/** Where an operand or an output comes from. */
export type Source =
  | { readonly from: "input"; readonly name: string }
  | { readonly from: "node"; readonly node: number; readonly output: number };

export interface Input {
  readonly kind: "batch" | "scalar" | "rng" | "state";
  readonly type: TensorType;
}

/** A node, absent operands being null; COMMIT is none of these (COMMITMENTS 5.7). */
export interface ProgramNode {
  readonly operator: Operator;
  readonly attributes: Attributes;
  /** PROGRAM 2.6. */
  readonly attributeBytes: Uint8Array;
  readonly operands: readonly (Source | null)[];
  readonly operandTypes: readonly (TensorType | null)[];
  readonly outputs: readonly TensorType[];
}

export interface StepProgram {
  /** PROGRAM 4.1, 6.9. */
  readonly digest: Uint8Array;
  /** COMMIT, the last one, included. */
  readonly nodeCount: number;
  /**
   * The first node of the last micro-batch, or 0. Those before are like its nodes, but for the
   * values that they read and their draws, which are smaller (PROGRAM 6.7).
   */
  readonly lastMicroBatch: number;
  /** Node `index` of the expansion, below nodeCount − 1. */
  node(index: number): ProgramNode;
  /** An input of the expansion: `batch.FIELD#v` where the text has micro-batches (6.7 b). */
  input(name: string): Input;
  /** The micro-batch that a batch input belongs to, its records per micro-batch, and its field. */
  batchInput(name: string): { readonly first: number; readonly field: string };
  /** The next states without the chains, in slot order (COMMITMENTS 5.7). */
  readonly nextStates: readonly { readonly slot: string; readonly value: Source }[];
  readonly loss: Source;
  /** The sections of a step's log, empty under a contract without logs (COMMITMENTS 10.1). */
  readonly sections: readonly LogSection[];
}

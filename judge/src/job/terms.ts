/**
 * A job's terms, as referee and judge need them (COMMITMENTS 7.5.6, PROTOCOL 1.1): bound by the job
 * digest, and without any tensor.
 */
import type { LogForm } from "../logs.ts";
import type { Contract } from "../operators/index.ts";
import type { StepProgram } from "../program/program.ts";
import type { Schema } from "../records.ts";
import type { TensorType } from "../tensors.ts";

/** A data set that a program reads (COMMITMENTS 7.6.1). */
export interface DataSet {
  /** From 0; queries of kind 16 name it. */
  readonly number: number;
  readonly root: Uint8Array;
  readonly records: number;
  readonly schema: Schema;
}

/** What step t executes, and on what (COMMITMENTS 7.6.3 to 7.6.6, 7.7.3 to 7.7.6, 8.4). */
export interface Step {
  readonly program: StepProgram;
  readonly batchNumber: number;
  /** Null where the program reads no data. */
  readonly data: DataSet | null;
  /** The record at a place of the step's batch, from 0, over all micro-batches. */
  record(place: number): number;
  /** A scalar's value; the name is that of the input, `scalar.` included. */
  scalar(name: string): number;
  /** The random key: seed and batch number (NUMERICS 8.3). */
  readonly key: readonly [bigint, bigint];
}

export interface Terms {
  readonly format: 1 | 2 | 3;
  readonly jobDigest: Uint8Array;
  readonly contract: Contract;
  /** The form of rounding logs that the contract has, if any (NUMERICS 14.2, 14.9). */
  readonly logs: LogForm | null;
  readonly genesisRoot: Uint8Array;
  readonly steps: number;
  readonly checkpointInterval: number;
  readonly stopsOnNonFinite: boolean;
  readonly stopsOnSlot: boolean;
  /** Every slot of a state, both chains included, in slot order (COMMITMENTS 1.4, 5.1). */
  readonly slots: ReadonlyMap<string, TensorType>;
  /** What the steps execute and read, in the job's order (7.6.1). */
  readonly programs: readonly StepProgram[];
  readonly data: readonly DataSet[];
  step(t: number): Step;
}

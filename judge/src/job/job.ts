/**
 * What fixes a job's computation (COMMITMENTS 7.1, 7.6.1, 7.7.1), in the words of format 3. In
 * format 2 each program is a stream of its own, with L = 0 over a shuffled data set (7.7.1). In
 * format 1 there is one program, and one turn of one step.
 */
export type Format = 1 | 2 | 3;

export interface JobData {
  readonly name: string;
  readonly root: Uint8Array;
  readonly records: number;
  readonly orderSeed: bigint;
  readonly isSequential: boolean;
}

export interface JobStream {
  readonly name: string;
  /** The number of a data set, from 0. */
  readonly data: number | null;
  readonly batchSize: number;
  readonly byPass: boolean;
  /** L of 7.7.1: 0 where a batch goes on from one epoch into the next. */
  readonly epochRecords: number;
  readonly first: number;
}

export interface JobProgram {
  readonly name: string;
  readonly digest: Uint8Array;
  readonly stream: number;
  readonly batchSize: number;
  readonly microBatches: number;
}

export interface Turn {
  readonly program: number;
  readonly steps: number;
}

export interface Job {
  readonly format: Format;
  readonly contract: string;
  readonly genesisRoot: Uint8Array;
  readonly data: readonly JobData[];
  readonly streams: readonly JobStream[];
  readonly programs: readonly JobProgram[];
  readonly turns: readonly Turn[];
  readonly rngSeed: bigint;
  readonly steps: number;
  readonly checkpointInterval: number;
  readonly scalarsDigest: Uint8Array;
  readonly stopsOnNonFinite: boolean;
  readonly stopsOnSlot: boolean;
  /** 32 zero bytes where the job continues no run (7.6.1). */
  readonly continues: Uint8Array;
}

/** A member that another one names by its number. */
export function at<T>(items: readonly T[], index: number): T {
  const found = items[index];
  if (found === undefined) throw new Error(`a job has no such part: ${index}`);
  return found;
}

/** Checkpoints, their schedule, and runs (COMMITMENTS 6, 7.6.8). */

import { equalBytes } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { leafHash, rootByInclusion, rootByMulti, rootOf } from "./merkle.ts";
import {
  CHAIN_START,
  chainDigest,
  LOG_CHAIN,
  LOSS_CHAIN,
  slotLeaf,
  stateRootByTree,
} from "./state.ts";
import { Writer } from "./writer.ts";

/** The leaf's hash of a checkpoint (6.1). */
export function checkpointLeaf(step: number, root: Uint8Array): Uint8Array {
  return leafHash(Writer.tagged("checkpoint/1").u64(step).hash(root).bytes());
}

/** How many checkpoints a run with this last step has (6.2). */
export function checkpointCount(last: number, interval: number): number {
  return Math.ceil(last / interval) + 1;
}

/** The step of a checkpoint (6.2). */
export function checkpointStep(index: number, last: number, interval: number): number {
  if (index < 0 || index >= checkpointCount(last, interval)) throw refuse("no checkpoint");
  return Math.min(index * interval, last);
}

/** The run root over a run tree of so many checkpoints (6.4). */
export function runRootByTree(job: Uint8Array, count: number, tree: Uint8Array): Uint8Array {
  return Writer.tagged("run/1").hash(job).u64(count).hash(tree).digest();
}

/** The run root of checkpoints in ascending order of their steps (6.3, 6.4). */
export function runRoot(
  job: Uint8Array,
  checkpoints: readonly { step: number; root: Uint8Array }[],
): Uint8Array {
  const leaves = checkpoints.map(({ step, root }) => checkpointLeaf(step, root));
  return runRootByTree(job, leaves.length, rootOf(leaves));
}

/** Whether checkpoints with one multi-proof give the run root (6.5; PROTOCOL 2.1, kind 1). */
export function provesCheckpoints(
  job: Uint8Array,
  checkpoints: readonly { index: number; step: number; root: Uint8Array }[],
  count: number,
  proof: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  const indices = checkpoints.map(({ index }) => index);
  const leaves = checkpoints.map(({ step, root: state }) => checkpointLeaf(step, state));
  const tree = rootByMulti(indices, leaves, count, proof);
  return tree !== undefined && equalBytes(runRootByTree(job, count, tree), root);
}

/** Whether one checkpoint with its inclusion proof gives the run root (6.5). */
export function provesCheckpoint(
  job: Uint8Array,
  checkpoint: { index: number; step: number; root: Uint8Array },
  count: number,
  proof: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  const leaf = checkpointLeaf(checkpoint.step, checkpoint.root);
  const tree = rootByInclusion(leaf, checkpoint.index, count, proof);
  return tree !== undefined && equalBytes(runRootByTree(job, count, tree), root);
}

/** The run that a job continues (7.6.8). */
export interface FinishedRun {
  readonly jobDigest: Uint8Array;
  readonly runRoot: Uint8Array;
  readonly finalStep: number;
  readonly finalStateRoot: Uint8Array;
}

/** The member `continues` of a job that goes on from a run (7.6.8). */
export function continuesDigest(run: FinishedRun): Uint8Array {
  return Writer.tagged("continues/1")
    .hash(run.jobDigest)
    .hash(run.runRoot)
    .u64(run.finalStep)
    .hash(run.finalStateRoot)
    .digest();
}

/**
 * Whether a genesis state is the final state of the run that goes on, with both chains begun anew
 * (7.6.8): one multi-proof of the chains' slots gives both roots.
 */
export function provesContinuation(
  names: readonly string[],
  chains: { loss: Uint8Array; log: Uint8Array },
  proof: readonly Uint8Array[],
  finalStateRoot: Uint8Array,
  genesisRoot: Uint8Array,
): boolean {
  const indices = [names.indexOf(LOG_CHAIN), names.indexOf(LOSS_CHAIN)];
  const gives = (log: Uint8Array, loss: Uint8Array, root: Uint8Array): boolean => {
    const leaves = [slotLeaf(LOG_CHAIN, chainDigest(log)), slotLeaf(LOSS_CHAIN, chainDigest(loss))];
    const tree = rootByMulti(indices, leaves, names.length, proof);
    return tree !== undefined && equalBytes(stateRootByTree(names.length, tree), root);
  };
  return (
    gives(chains.log, chains.loss, finalStateRoot) && gives(CHAIN_START, CHAIN_START, genesisRoot)
  );
}

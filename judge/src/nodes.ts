/** Digests of nodes and the node tree of a step (COMMITMENTS 4). */

import { leafHash, rootByInclusion } from "./merkle.ts";
import { Writer } from "./writer.ts";

/** What a node's digest holds beside program, step and index (4.1). */
export interface NodeRecord {
  readonly operator: string;
  readonly attributes: Uint8Array;
  /** Tensor digests in the operator's order; absent operands are skipped. */
  readonly inputs: readonly Uint8Array[];
  readonly outputs: readonly Uint8Array[];
}

/** The node digest (4.1). */
export function nodeDigest(
  program: Uint8Array,
  step: number,
  index: number,
  node: NodeRecord,
): Uint8Array {
  return Writer.tagged("node/1")
    .hash(program)
    .u64(step)
    .u64(index)
    .text(node.operator)
    .blob(node.attributes)
    .hashes(node.inputs)
    .hashes(node.outputs)
    .digest();
}

/** The node root: the number of nodes with the root of the node tree (4.3). */
export function nodeRoot(count: number | bigint, treeRoot: Uint8Array): Uint8Array {
  return Writer.tagged("nodes/1").u64(count).hash(treeRoot).digest();
}

/** The root of the node tree that the proof of a node gives, if it gives one (4.4). */
export function treeByNode(
  digest: Uint8Array,
  index: number,
  count: number,
  proof: readonly Uint8Array[],
): Uint8Array | undefined {
  return rootByInclusion(leafHash(digest), index, count, proof);
}

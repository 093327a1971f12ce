/** States, the chains of losses and of logs, and the COMMIT node (COMMITMENTS 5). */

import { compareBytes, equalBytes, toUtf8 } from "./bytes.ts";
import { inclusionProofBy, leafHash, rootByInclusion, rootOf } from "./merkle.ts";
import { nodeDigest } from "./nodes.ts";
import { sha256 } from "./sha256.ts";
import { tensorDigest, type TensorType } from "./tensors.ts";
import { Writer } from "./writer.ts";

/** The slots of the two chains (5.5, 5.6). */
export const LOSS_CHAIN = "chain.loss";
export const LOG_CHAIN = "chain.log";
/** The type of a chain's slot (5.5). */
export const CHAIN_TYPE: TensorType = { dtype: "u8", shape: [32] };
/** Both chains in state[0] (5.5). */
export const CHAIN_START = new Uint8Array(32);
/** The operator of the last node of every program (5.7). */
export const COMMIT = "tallystick.commit";

/** Names of slots in the order of 1.4. */
export function slotOrder(names: Iterable<string>): string[] {
  const encoded = [...names].map((name) => ({ name, bytes: toUtf8(name) }));
  return encoded.sort((a, b) => compareBytes(a.bytes, b.bytes)).map(({ name }) => name);
}

/** The leaf's hash of a slot (5.2). */
export function slotLeaf(name: string, digest: Uint8Array): Uint8Array {
  return leafHash(Writer.tagged("slot/1").text(name).hash(digest).bytes());
}

/** The state root over a tree of so many slots (5.3). */
export function stateRootByTree(count: number, treeRoot: Uint8Array): Uint8Array {
  return Writer.tagged("state/1").u64(count).hash(treeRoot).digest();
}

/** The state root of slots with these tensor digests (5.3). */
export function stateRoot(slots: ReadonlyMap<string, Uint8Array>): Uint8Array {
  const leaves = slotOrder(slots.keys()).map((name) =>
    slotLeaf(name, slots.get(name) ?? new Uint8Array()),
  );
  return stateRootByTree(leaves.length, rootOf(leaves));
}

/** The state roots of slots that are equal but for one, of each of its digests (5.3). */
export function stateRootsBy(
  name: string,
  digests: readonly Uint8Array[],
  others: ReadonlyMap<string, Uint8Array>,
): Uint8Array[] {
  const names = slotOrder([...others.keys(), name]);
  const index = names.indexOf(name);
  const leafAt = (k: number): Uint8Array => {
    const other = names[k] ?? "";
    return slotLeaf(other, others.get(other) ?? new Uint8Array());
  };
  const proof = inclusionProofBy(leafAt, index, names.length);
  return digests.map((digest) => {
    const tree = rootByInclusion(slotLeaf(name, digest), index, names.length, proof);
    return stateRootByTree(names.length, tree ?? new Uint8Array());
  });
}

/** Whether a slot's proof gives the state root. Name, index and number of slots are the verifier's
 * own (5.4). */
export function provesSlot(
  name: string,
  digest: Uint8Array,
  index: number,
  count: number,
  proof: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  const tree = rootByInclusion(slotLeaf(name, digest), index, count, proof);
  return tree !== undefined && equalBytes(stateRootByTree(count, tree), root);
}

/** The bits of a binary32, a NaN's being the canonical ones (3.3). */
export function canonicalBits(bits: number): number {
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fc00000 : bits;
}

/** The loss chain after step t with the loss of these bits (5.5). */
export function extendLossChain(chain: Uint8Array, step: number, bits: number): Uint8Array {
  const layout = Writer.tagged("loss-chain/1").hash(chain).u64(step);
  return layout.u32(canonicalBits(bits)).digest();
}

/** The log chain after step t with a log of this digest (5.6, 10.5). */
export function extendLogChain(chain: Uint8Array, step: number, log: Uint8Array): Uint8Array {
  return Writer.tagged("log-chain/1").hash(chain).u64(step).hash(log).digest();
}

/** The tensor digest of a chain's value. */
export function chainDigest(chain: Uint8Array): Uint8Array {
  return tensorDigest(CHAIN_TYPE, chain);
}

/** The tensor digest of a loss, f32 and 0-d, by its bits. */
function lossDigest(bits: number): Uint8Array {
  return tensorDigest({ dtype: "f32", shape: [] }, new Writer().u32(canonicalBits(bits)).bytes());
}

/** The attribute bytes of the COMMIT node: the slots but the chains, in their order (5.7). */
export function commitAttributes(names: readonly string[]): Uint8Array {
  const out = new Writer();
  return out.list(names, (name) => out.text(name)).bytes();
}

/** What one step's COMMIT node commits (5.7). */
export interface Commit {
  readonly step: number;
  /** The next state's slots but the two chains. */
  readonly slots: ReadonlyMap<string, Uint8Array>;
  readonly lossBits: number;
  readonly lossChain: Uint8Array;
  readonly logChain: Uint8Array;
  /** The digest of the step's log, under a contract with logs (5.6). */
  readonly log?: Uint8Array;
}

/** The chains after the step (5.5, 5.6). */
function chainsAfter(commit: Commit): [Uint8Array, Uint8Array] {
  const { lossChain, logChain, step, log } = commit;
  const after = log === undefined ? logChain : extendLogChain(logChain, step, log);
  return [extendLossChain(lossChain, step, commit.lossBits), after];
}

/** The slots of state[step + 1], both chains included (5.7). */
export function nextState(commit: Commit): Map<string, Uint8Array> {
  const [loss, log] = chainsAfter(commit);
  const chains: [string, Uint8Array][] = [
    [LOSS_CHAIN, chainDigest(loss)],
    [LOG_CHAIN, chainDigest(log)],
  ];
  return new Map([...commit.slots, ...chains]);
}

/** The digest of the COMMIT node (5.7). */
export function commitDigest(program: Uint8Array, index: number, commit: Commit): Uint8Array {
  const names = slotOrder(commit.slots.keys());
  const [loss, log] = chainsAfter(commit);
  return nodeDigest(program, commit.step, index, {
    operator: COMMIT,
    attributes: commitAttributes(names),
    inputs: [
      ...names.map((name) => commit.slots.get(name) ?? sha256()),
      lossDigest(commit.lossBits),
      chainDigest(commit.lossChain),
      chainDigest(commit.logChain),
    ],
    outputs: [chainDigest(loss), chainDigest(log), stateRoot(nextState(commit))],
  });
}

/** The bodies of kinds 1 to 4, 6, 7, 12 and 16 (PROTOCOL 2.1, 2.7). */
import { refuse } from "../errors.ts";
import { INCLUSION_HASHES, LIMITS } from "../limits.ts";
import type { NodeRecord } from "../nodes.ts";
import type { Reader } from "../reader.ts";

/** The hashes of an inclusion proof. A wrong number within the limit gives no root (2.7). */
export const readInclusion = (reader: Reader): Uint8Array[] =>
  reader.hashes(INCLUSION_HASHES, "hashes of an inclusion proof");

const readRoots = (reader: Reader, count: number): Uint8Array[] =>
  Array.from({ length: count }, () => reader.hash());

/** Kind 1: state roots of so many checkpoints, and their multi-proof. */
export interface Checkpoints {
  readonly roots: readonly Uint8Array[];
  readonly proof: readonly Uint8Array[];
}

export const readCheckpoints =
  (count: number) =>
  (reader: Reader): Checkpoints => ({
    roots: readRoots(reader, count),
    proof: reader.hashes(LIMITS.proofHashes, "hashes of a multi-proof"),
  });

/** Kind 2: the roots of so many states. */
export const readStates =
  (count: number) =>
  (reader: Reader): Uint8Array[] =>
    readRoots(reader, count);

/** Kind 3. */
export interface LossProof {
  readonly chain: Uint8Array;
  readonly bits: number;
  readonly proof: readonly Uint8Array[];
}

export const readLoss = (reader: Reader): LossProof => ({
  chain: reader.hash(),
  bits: reader.u32(),
  proof: readInclusion(reader),
});

/** Kind 4. */
export interface NodeTree {
  readonly count: bigint;
  readonly root: Uint8Array;
}

export const readNodes = (reader: Reader): NodeTree => ({
  count: reader.u64(),
  root: reader.hash(),
});

/** Kind 6. */
export interface ProvedNode extends NodeRecord {
  readonly proof: readonly Uint8Array[];
}

export const readNode = (reader: Reader): ProvedNode => ({
  operator: reader.text(),
  attributes: reader.blob(LIMITS.attributeBytes, "attributes"),
  inputs: reader.hashes(LIMITS.nodeInputs, "inputs of a node"),
  outputs: reader.hashes(LIMITS.nodeOutputs, "outputs of a node"),
  proof: readInclusion(reader),
});

/** Kind 7. */
export interface SlotProof {
  readonly digest: Uint8Array;
  readonly proof: readonly Uint8Array[];
}

export const readSlot = (reader: Reader): SlotProof => ({
  digest: reader.hash(),
  proof: readInclusion(reader),
});

function readBytes(reader: Reader, length: number): Uint8Array {
  const bytes = reader.blob(length, "bytes of a record");
  if (bytes.length !== length) throw refuse("another number of bytes");
  return bytes;
}

/** Kind 12: a record of so many bytes. */
export const readRecord =
  (length: number) =>
  (reader: Reader): { bytes: Uint8Array; inner: Uint8Array[]; path: Uint8Array[] } => ({
    bytes: readBytes(reader, length),
    inner: [],
    path: readInclusion(reader),
  });

/** Kind 16: a part of so many bytes. */
export const readRecordPart =
  (length: number) =>
  (reader: Reader): { bytes: Uint8Array; inner: Uint8Array[]; path: Uint8Array[] } => ({
    bytes: readBytes(reader, length),
    inner: readInclusion(reader),
    path: readInclusion(reader),
  });

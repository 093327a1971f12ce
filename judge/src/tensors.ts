/** Tensors: headers, digests, leaves and openings (COMMITMENTS 3). */

import { equalBytes } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { leafHash, multiProofLength, rootByMulti, rootOf } from "./merkle.ts";
import { WIDTH, type Dtype } from "./numbers/bits.ts";
import { Reader } from "./reader.ts";
import { sha256 } from "./sha256.ts";
import { Writer } from "./writer.ts";

export interface TensorType {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
}

/** The bytes of a leaf (3.4). */
export const LEAF_BYTES = 2048;

const CODES: readonly Dtype[] = ["f32", "f64", "i64", "i32", "u8", "bool", "bf16", "f16"];

/** The dtype of a name of 3.1. */
export function dtypeOf(name: string): Dtype {
  const found = CODES.find((dtype) => dtype === name);
  if (found === undefined) throw refuse("no dtype of COMMITMENTS 3.1");
  return found;
}

/** The bytes of an element (3.1). */
export function widthOf(dtype: Dtype): number {
  return WIDTH[dtype];
}

/** Refuses more axes, larger sizes and more bytes than 11.1 allows; returns the number of
 * canonical bytes (3.2). Sizes are whole and not negative. */
export function byteLength(type: TensorType): number {
  if (type.shape.length > LIMITS.tensorRank) throw refuse(`a tensor of ${type.shape.length} axes`);
  for (const size of type.shape) {
    if (!Number.isSafeInteger(size) || size < 0 || size > LIMITS.tensorBytes) {
      throw refuse("a tensor's size is out of range");
    }
  }
  if (type.shape.includes(0)) return 0;
  let bytes = widthOf(type.dtype);
  for (const size of type.shape) {
    bytes *= size;
    if (bytes > LIMITS.tensorBytes) throw refuse("a tensor of too many bytes");
  }
  return bytes;
}

/** How many elements a tensor has. */
export function elementsOf(type: TensorType): number {
  return byteLength(type) / widthOf(type.dtype);
}

export function sameType(a: TensorType, b: TensorType): boolean {
  const sameShape = a.shape.length === b.shape.length && a.shape.every((n, i) => n === b.shape[i]);
  return a.dtype === b.dtype && sameShape;
}

/** The header of a tensor (3.1). */
export function headerOf(type: TensorType): Uint8Array {
  const out = new Writer().u8(CODES.indexOf(type.dtype) + 1).u8(type.shape.length);
  for (const size of type.shape) out.u64(size);
  return out.bytes();
}

/** Reads a header (3.1), its limits checked. */
function readHeader(reader: Reader): TensorType {
  const dtype = CODES[reader.u8() - 1];
  if (dtype === undefined) throw refuse("a dtype code of no dtype");
  const rank = reader.u8();
  if (rank > LIMITS.tensorRank) throw refuse(`a tensor of ${rank} axes`);
  const shape = Array.from({ length: rank }, () => reader.count(LIMITS.tensorBytes, "a size"));
  const type = { dtype, shape };
  byteLength(type);
  return type;
}

/** How many leaves a tensor has (3.4). */
export function leafCount(type: TensorType): number {
  return Math.ceil(byteLength(type) / LEAF_BYTES);
}

/** How many bytes one leaf of a tensor has (3.4). */
export function leafLength(type: TensorType, leaf: number): number {
  return Math.min(LEAF_BYTES, byteLength(type) - leaf * LEAF_BYTES);
}

/** The hashes of the leaves of canonical bytes (3.4). */
export function leafHashes(bytes: Uint8Array): Uint8Array[] {
  return Array.from({ length: Math.ceil(bytes.length / LEAF_BYTES) }, (_, i) =>
    leafHash(bytes.subarray(i * LEAF_BYTES, (i + 1) * LEAF_BYTES)),
  );
}

/** The digest of a tensor whose leaves have this root (3.5). */
export function digestByRoot(type: TensorType, root: Uint8Array): Uint8Array {
  const layout = Writer.tagged("tensor/1").raw(headerOf(type)).u64(byteLength(type));
  return layout.u32(LEAF_BYTES).hash(root).digest();
}

/** The digest of a tensor by its canonical bytes (3.5). */
export function tensorDigest(type: TensorType, bytes: Uint8Array): Uint8Array {
  if (bytes.length !== byteLength(type)) throw refuse("other bytes than the tensor's type has");
  return digestByRoot(type, rootOf(leafHashes(bytes)));
}

/** Whether bytes are canonical values of a dtype (3.3): one NaN, and bools of 0 and 1. */
export function canonicalValues(dtype: Dtype, bytes: Uint8Array): boolean {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (dtype === "bool") return bytes.every((byte) => byte < 2);
  if (dtype === "bf16" || dtype === "f16") {
    const [infinity, nan] = dtype === "bf16" ? [0x7f80, 0x7fc0] : [0x7c00, 0x7e00];
    for (let at = 0; at < bytes.length; at += 2) {
      const bits = view.getUint16(at, true);
      if ((bits & 0x7fff) > infinity && bits !== nan) return false;
    }
  }
  if (dtype === "f32") {
    for (let at = 0; at < bytes.length; at += 4) {
      const bits = view.getUint32(at, true);
      if ((bits & 0x7fffffff) > 0x7f800000 && bits !== 0x7fc00000) return false;
    }
  }
  if (dtype === "f64") {
    for (let at = 0; at < bytes.length; at += 8) {
      const [low, high] = [view.getUint32(at, true), view.getUint32(at + 4, true)];
      const magnitude = high & 0x7fffffff;
      const nan = magnitude > 0x7ff00000 || (magnitude === 0x7ff00000 && low !== 0);
      if (nan && (high !== 0x7ff80000 || low !== 0)) return false;
    }
  }
  return true;
}

/** Leaves of a tensor with the multi-proof of them (3.6). */
export interface TensorOpening {
  readonly type: TensorType;
  readonly leaves: readonly { readonly index: number; readonly bytes: Uint8Array }[];
  readonly proof: readonly Uint8Array[];
}

/** The layout of an opening (3.6). */
export function writeOpening(opening: TensorOpening): Uint8Array {
  const out = Writer.tagged("tensor-opening/1").raw(headerOf(opening.type));
  out.list(opening.leaves, ({ index, bytes }) => out.u64(index).raw(bytes));
  return out.hashes(opening.proof).bytes();
}

/**
 * Reads an opening (3.6). Its leaves ascend and are the tensor's, and the number of hashes is that
 * of 2.7. Where the verifier knows the type or the leaves it requires them.
 */
export function readOpening(
  bytes: Uint8Array,
  expected?: TensorType,
  wanted?: readonly number[],
): TensorOpening {
  if (bytes.length > LIMITS.openingBytes) throw refuse("an opening of too many bytes");
  const reader = new Reader(bytes);
  reader.tag("tensor-opening/1");
  const type = readHeader(reader);
  if (expected !== undefined && !sameType(type, expected))
    throw refuse("an opening of another type");
  const count = leafCount(type);
  let before = -1;
  const leaves = reader.list(LIMITS.openingLeaves, 9, "leaves", () => {
    const index = reader.count(Number.MAX_SAFE_INTEGER, "a leaf");
    if (index <= before || index >= count) throw refuse("leaves that do not ascend, or are none");
    before = index;
    return { index, bytes: reader.take(leafLength(type, index)) };
  });
  const proof = reader.hashes(LIMITS.proofHashes, "hashes of an opening");
  reader.end();
  const indices = leaves.map(({ index }) => index);
  if (wanted !== undefined) {
    const same = wanted.length === indices.length && wanted.every((leaf, i) => leaf === indices[i]);
    if (!same) throw refuse("an opening of other leaves");
  }
  const hashes = indices.length > 0 ? multiProofLength(indices, count) : 0;
  if (proof.length !== hashes || (indices.length === 0 && count > 0)) {
    throw refuse("an opening with another number of hashes");
  }
  return { type, leaves, proof };
}

/** Whether an opening is accepted for a digest (3.6). */
export function opens(opening: TensorOpening, digest: Uint8Array): boolean {
  const indices = opening.leaves.map(({ index }) => index);
  const hashes = opening.leaves.map(({ bytes }) => leafHash(bytes));
  const count = leafCount(opening.type);
  const root = count === 0 ? sha256() : rootByMulti(indices, hashes, count, opening.proof);
  return root !== undefined && equalBytes(digestByRoot(opening.type, root), digest);
}

/** Merkle trees of RFC 9162 (COMMITMENTS 2): roots, proofs, and what a proof gives. */

import { equalBytes } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { sha256 } from "./sha256.ts";

const LEAF = Uint8Array.of(0);
const NODE = Uint8Array.of(1);

/** COMMITMENTS 2.1. */
export function leafHash(data: Uint8Array): Uint8Array {
  return sha256(LEAF, data);
}

/** COMMITMENTS 2.2. */
export function nodeHash(left: Uint8Array, right: Uint8Array): Uint8Array {
  return sha256(NODE, left, right);
}

/** The largest power of two smaller than n, for n of at least 2. */
export function splitOf(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}

/** Gives a leaf's hash. Of a large tree it is made when it is asked for, once, and not kept. */
export type LeafAt = (index: number) => Uint8Array;

/** The root over leaves `first` to `end - 1`, at least one (COMMITMENTS 2.3). */
function rootBetween(leafAt: LeafAt, first: number, end: number): Uint8Array {
  if (end - first === 1) return leafAt(first);
  const middle = first + splitOf(end - first);
  return nodeHash(rootBetween(leafAt, first, middle), rootBetween(leafAt, middle, end));
}

/** The root over leaves `first` to `end - 1` of these leaf hashes (COMMITMENTS 2.3). */
export function rootOf(
  hashes: readonly Uint8Array[],
  first = 0,
  end: number = hashes.length,
): Uint8Array {
  return end === first ? sha256() : rootBetween((k) => hashes[k] ?? sha256(), first, end);
}

/** The subtrees beside the way from the root down to a leaf: their leaves, and on which side. */
function beside(index: number, size: number): { left: boolean; first: number; end: number }[] {
  const found: { left: boolean; first: number; end: number }[] = [];
  let [first, end] = [0, size];
  while (end - first > 1) {
    const middle = first + splitOf(end - first);
    if (index < middle) found.push({ left: false, first: middle, end });
    else found.push({ left: true, first, end: middle });
    [first, end] = index < middle ? [first, middle] : [middle, end];
  }
  return found;
}

/** How many hashes an inclusion proof has (COMMITMENTS 2.5). */
export function inclusionLength(index: number, size: number): number {
  return beside(index, size).length;
}

/** The inclusion proof of a leaf in a tree of `size` leaves (COMMITMENTS 2.5), upwards. */
export function inclusionProofBy(leafAt: LeafAt, index: number, size: number): Uint8Array[] {
  return beside(index, size)
    .reverse()
    .map(({ first, end }) => rootBetween(leafAt, first, end));
}

function allHashes(hashes: readonly Uint8Array[]): boolean {
  return hashes.every((hash) => hash.length === 32);
}

/** The root that an inclusion proof gives; none where its length is another one, the index is out
 * of the tree, or a hash has not 32 bytes (COMMITMENTS 2.5, 2.8). */
export function rootByInclusion(
  leaf: Uint8Array,
  index: number,
  size: number,
  proof: readonly Uint8Array[],
): Uint8Array | undefined {
  if (!(index >= 0 && index < size) || !allHashes([leaf, ...proof])) return undefined;
  const ways = beside(index, size).reverse();
  if (ways.length !== proof.length) return undefined;
  return proof.reduce(
    (hash, other, level) => (ways[level]?.left ? nodeHash(other, hash) : nodeHash(hash, other)),
    leaf,
  );
}

/** Whether an inclusion proof proves a leaf's hash under a root (COMMITMENTS 2.5). */
export function verifiesInclusion(
  leaf: Uint8Array,
  index: number,
  size: number,
  proof: readonly Uint8Array[],
  root: Uint8Array,
): boolean {
  const found = rootByInclusion(leaf, index, size, proof);
  return found !== undefined && equalBytes(found, root);
}

/** The consistency proof between the first `old` leaves and all of them (COMMITMENTS 2.6). */
export function consistencyProof(hashes: readonly Uint8Array[], old: number): Uint8Array[] {
  const proof: Uint8Array[] = [];
  const walk = (first: number, end: number, m: number, whole: boolean): void => {
    if (m === end - first) {
      if (!whole) proof.push(rootOf(hashes, first, end));
      return;
    }
    const middle = first + splitOf(end - first);
    if (m <= middle - first) {
      walk(first, middle, m, whole);
      proof.push(rootOf(hashes, middle, end));
    } else {
      walk(middle, end, m - (middle - first), false);
      proof.push(rootOf(hashes, first, middle));
    }
  };
  if (old > 0) walk(0, hashes.length, old, true);
  return proof;
}

/** Whether a tree of `size` leaves extends one of `old` leaves (COMMITMENTS 2.6, 2.8). */
export function verifiesConsistency(
  old: number,
  size: number,
  oldRoot: Uint8Array,
  newRoot: Uint8Array,
  proof: readonly Uint8Array[],
): boolean {
  if (!(old >= 0 && old <= size) || !allHashes([oldRoot, newRoot, ...proof])) return false;
  if (old === 0 || old === size) {
    const empty = old > 0 || equalBytes(oldRoot, sha256());
    return proof.length === 0 && empty && (old < size || equalBytes(oldRoot, newRoot));
  }
  let at = 0;
  const next = (): Uint8Array => proof[at++] ?? new Uint8Array();
  /** The hashes that a subtree has in the old tree and in the new one. */
  const walk = (m: number, n: number, whole: boolean): [Uint8Array, Uint8Array] => {
    if (m === n) {
      const hash = whole ? oldRoot : next();
      return [hash, hash];
    }
    const k = splitOf(n);
    if (m <= k) {
      const [before, after] = walk(m, k, whole);
      return [before, nodeHash(after, next())];
    }
    const [before, after] = walk(m - k, n - k, false);
    const left = next();
    return [nodeHash(left, before), nodeHash(left, after)];
  };
  const [before, after] = walk(old, size, true);
  return at === proof.length && equalBytes(before, oldRoot) && equalBytes(after, newRoot);
}

/** What a walk of COMMITMENTS 2.7 does at a subtree without, and at a leaf of, the set. */
interface MultiWalk<T> {
  outside: (first: number, end: number) => T;
  inside: (leaf: number) => T;
  join: (left: T, right: T) => T;
}

function multiWalk<T>(leaves: readonly number[], size: number, does: MultiWalk<T>): T {
  const ascending = leaves.every(
    (leaf, i) => Number.isSafeInteger(leaf) && leaf > (leaves[i - 1] ?? -1),
  );
  const last = leaves.at(-1);
  if (!ascending || last === undefined || last >= size)
    throw refuse("no set of leaves of the tree");
  let at = 0;
  const walk = (first: number, end: number): T => {
    const next = leaves[at];
    if (next === undefined || next >= end) return does.outside(first, end);
    if (end - first === 1) {
      at++;
      return does.inside(first);
    }
    const middle = first + splitOf(end - first);
    const left = walk(first, middle);
    return does.join(left, walk(middle, end));
  };
  return walk(0, size);
}

/** The subtrees without a leaf of the set: those of a multi-proof's hashes, in their order (2.7). */
export function subtreesOutside(
  leaves: readonly number[],
  size: number,
): { first: number; end: number }[] {
  const found: { first: number; end: number }[] = [];
  multiWalk(leaves, size, {
    outside: (first, end) => found.push({ first, end }),
    inside: () => 0,
    join: () => 0,
  });
  return found;
}

/** How many hashes the multi-proof of ascending leaves has (COMMITMENTS 2.7). */
export function multiProofLength(leaves: readonly number[], size: number): number {
  return multiWalk(leaves, size, {
    outside: () => 1,
    inside: () => 0,
    join: (left, right) => left + right,
  });
}

/**
 * The most hashes that the multi-proof of so many leaves, at least one, can have. The nodes over the
 * leaves are at most min(2^level, count) of a level. Each one has two below it, of which those over
 * no leaf are hashes.
 */
export function multiProofMost(count: number, size: number): number {
  let hashes = 0;
  for (let [level, depth] = [0, inclusionLength(0, size)]; level < depth; level++) {
    const [above, below] = [Math.min(2 ** level, count), Math.min(2 ** (level + 1), count)];
    hashes += 2 * above - below;
  }
  return hashes;
}

/** The multi-proof of ascending leaves, left to right (COMMITMENTS 2.7). */
export function multiProof(hashes: readonly Uint8Array[], leaves: readonly number[]): Uint8Array[] {
  const proof: Uint8Array[] = [];
  multiWalk(leaves, hashes.length, {
    outside: (first, end) => proof.push(rootOf(hashes, first, end)),
    inside: () => 0,
    join: () => 0,
  });
  return proof;
}

/** The root that a multi-proof gives; none where it has too few or too many hashes, or a hash has
 * not 32 bytes (COMMITMENTS 2.7, 2.8). The set itself is the verifier's own: ascending leaves. */
export function rootByMulti(
  leaves: readonly number[],
  hashes: readonly Uint8Array[],
  size: number,
  proof: readonly Uint8Array[],
): Uint8Array | undefined {
  if (hashes.length !== leaves.length || !allHashes([...hashes, ...proof])) return undefined;
  const [given, own] = [proof.values(), hashes.values()];
  const missing = new Uint8Array();
  if (multiProofLength(leaves, size) !== proof.length) return undefined;
  return multiWalk(leaves, size, {
    outside: () => given.next().value ?? missing,
    inside: () => own.next().value ?? missing,
    join: nodeHash,
  });
}

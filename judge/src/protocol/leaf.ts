/** The disputed element of a tensor (PROTOCOL 6.1), and an element that party 0 opens (6.13). */
import { equalBytes } from "../bytes.ts";
import { leafHash } from "../merkle.ts";
import type { Reader } from "../reader.ts";
import { refuse } from "../errors.ts";
import { sha256 } from "../sha256.ts";
import {
  canonicalValues,
  digestByRoot,
  LEAF_BYTES,
  leafCount,
  leafLength,
  widthOf,
  type TensorType,
} from "../tensors.ts";
import { descendTo, firstDifference, isHashOf, plainHashes, type StatedTree } from "./descent.ts";
import type { Case, Play } from "./play.ts";
import type { Side } from "./queries.ts";
import {
  askBoth,
  askOne,
  convict,
  convictBoth,
  convictWhere,
  forBoth,
  PARTIES,
  type Both,
} from "./rounds.ts";

/** An operand or an output of a node. */
export interface TensorPlace {
  readonly step: number;
  readonly node: number;
  readonly side: Side;
  readonly operand: number;
}

/** An element and its bytes, as each party has them. */
export interface DisputedElement {
  readonly element: number;
  readonly values: Both<Uint8Array>;
}

/** The leaves of a tensor as a tree under digests, one of each party (PROTOCOL 2.4). */
function leavesOf(
  at: TensorPlace,
  digests: Both<Uint8Array>,
  type: TensorType,
  clause: string,
): StatedTree {
  return {
    leaves: leafCount(type),
    query: (range) => ({ kind: "tensor hashes", ...at, range }),
    hashes: plainHashes,
    isRoot: (party, hash) => equalBytes(digestByRoot(type, hash), digests[party]),
    clause,
  };
}

/** Reads the body of kind 9: a leaf of this length. */
const readLeaf =
  (length: number) =>
  (reader: Reader): Uint8Array => {
    const bytes = reader.blob(LEAF_BYTES, "a leaf");
    if (bytes.length !== length) throw refuse("a leaf of another length");
    return bytes;
  };

/**
 * Finds the first element whose bytes differ. The digests differ; the type is that of both. `ofCase`
 * is the case of a conviction for a value that is not canonical.
 */
export function* disputedElement(
  at: TensorPlace,
  digests: Both<Uint8Array>,
  type: TensorType,
  ofCase: Case = "3",
): Play<DisputedElement> {
  const tree = leavesOf(at, digests, type, "6.1");
  if (tree.leaves === 0) {
    // An empty tensor has the digest that its type gives.
    const due = digestByRoot(type, sha256());
    convictWhere(
      forBoth((party) => !equalBytes(digests[party], due)),
      "6.1",
      ofCase,
    );
    throw new Error("equal digests of an empty tensor");
  }
  const { leaf, hashes } = yield* firstDifference(tree);
  const length = leafLength(type, leaf);
  const leaves = yield* askBoth({ kind: "leaf", ...at, leaf }, readLeaf(length));
  const isFalse = forBoth(
    (party) => !isHashOf(tree, party, leafHash(leaves[party]), hashes[party]),
  );
  convictWhere(isFalse, "6.1", null);
  convictWhere(
    forBoth((party) => !canonicalValues(type.dtype, leaves[party])),
    "6.1",
    ofCase,
  );
  const width = widthOf(type.dtype);
  const [a, b] = leaves;
  const first = a.findIndex((byte, k) => byte !== b[k]);
  if (first < 0) throw new Error("equal leaves of different hashes");
  const from = first - (first % width);
  return {
    element: (leaf * LEAF_BYTES + from) / width,
    values: [a.subarray(from, from + width), b.subarray(from, from + width)],
  };
}

/**
 * The bytes of an element on which both agree (PROTOCOL 6.13): party 0 opens it. The element
 * exists, so the tensor has a leaf.
 */
export function* openedElement(
  at: TensorPlace,
  digest: Uint8Array,
  type: TensorType,
  element: number,
): Play<Uint8Array> {
  const width = widthOf(type.dtype);
  const leaf = Math.floor((element * width) / LEAF_BYTES);
  const [party] = PARTIES;
  const tree = leavesOf(at, [digest, digest], type, "6.13");
  const { hashes } = yield* descendTo(tree, leaf, party);
  const length = leafLength(type, leaf);
  const bytes = yield* askOne(party, { kind: "leaf", ...at, leaf }, readLeaf(length));
  if (!isHashOf(tree, party, leafHash(bytes), hashes[party])) throw convict(party, "6.13", null);
  if (!canonicalValues(type.dtype, bytes)) throw convictBoth("6.13", "3");
  const from = element * width - leaf * LEAF_BYTES;
  return bytes.subarray(from, from + width);
}

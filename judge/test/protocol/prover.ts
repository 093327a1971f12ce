/** A prover of one element in a test: it states what its own operands give, evaluated whole. */
import type { Bits } from "../../src/numbers/bits.ts";
import { better, BLOCK, blockOf, type Quantity } from "../../src/operators/index.ts";
import { multiProof, rootOf } from "../../src/merkle.ts";
import { partsOf } from "../../src/protocol/parts.ts";
import type { Query } from "../../src/protocol/queries.ts";
import { bytesOfBits } from "../../src/protocol/values.ts";
import { concatBytes } from "../../src/bytes.ts";
import { headerOf, LEAF_BYTES, leafHashes, leafLength, tensorDigest } from "../../src/tensors.ts";
import { Writer } from "../../src/writer.ts";
import { fail, read, valueOf, type Tensor } from "../operators/calls.ts";

export const bytesOf = ({ dtype, elements }: Tensor): Uint8Array =>
  concatBytes(...elements.map((bits) => bytesOfBits(dtype, bits)));

export const digestOf = (tensor: Tensor): Uint8Array => tensorDigest(tensor, bytesOf(tensor));

/** The quantity at a path (OPENING 3.1). */
export function quantityAt(root: Quantity, path: readonly number[]): Quantity {
  return path.reduce((quantity, step) => {
    const need = quantity.needs[step];
    if (need !== undefined) return need;
    if (quantity.kind !== "terms") return fail("a path that leads nowhere");
    return quantity.term(step - quantity.needs.length);
  }, root);
}

type Operands = readonly (Tensor | null)[];

/** The values that a view states (OPENING 3.2). */
export function viewed(
  root: Quantity,
  query: Extract<Query, { kind: "values" }>,
  operands: Operands,
): Bits[] {
  const quantity = quantityAt(root, query.path);
  const needs = (): Bits[] => quantity.needs.map((need) => valueOf(need, operands));
  const { view } = query;
  if (view.view === "needs") return needs();
  if (quantity.kind === "extremum") {
    const all = Array.from({ length: quantity.count }, (_, k) => k);
    const elements = read(quantity.elements(all, needs()), operands);
    const best = elements.reduce(
      (found, bits, k) => (better(quantity, elements[found] ?? 0n, bits) === 1 ? k : found),
      0,
    );
    return [BigInt(best)];
  }
  if (quantity.kind === "chain" && view.view === "states") {
    const states: Bits[] = [];
    for (let at = view.first + view.stride; at < view.last; at += view.stride) {
      states.push(valueOf({ ...quantity, count: at }, operands));
    }
    return states;
  }
  if (quantity.kind !== "tree" && quantity.kind !== "terms") return fail("no view of this kind");
  const terms = (first: number, last: number): readonly Bits[] =>
    quantity.kind === "tree"
      ? read(quantity.terms(first, last, needs()), operands)
      : Array.from({ length: last - first }, (_, k) => valueOf(quantity.term(first + k), operands));
  if (view.view === "terms") return [...terms(view.first, view.last)];
  if (view.view !== "blocks") return fail("no view of this kind");
  let values: Bits[] = [];
  for (let first = 0; first < quantity.count; first += BLOCK) {
    const last = Math.min(first + BLOCK, quantity.count);
    values.push(blockOf(quantity.dtype, terms(first, last)));
  }
  for (let level = 1; level < view.level; level++) {
    const below = values;
    values = [];
    for (let first = 0; first < below.length; first += BLOCK) {
      values.push(blockOf(quantity.dtype, below.slice(first, first + BLOCK)));
    }
  }
  return values.slice(BLOCK * view.index, BLOCK * (view.index + 1));
}

/** The dtypes of the values that a view states. */
export function dtypesOf(root: Quantity, query: Extract<Query, { kind: "values" }>, count: number) {
  const quantity = quantityAt(root, query.path);
  if (query.view.view === "needs") return quantity.needs.map(({ dtype }) => dtype);
  const own = query.view.view === "witness" ? "i64" : quantity.dtype;
  return Array.from({ length: count }, () => own);
}

/** The body of an opening of leaves of a tensor (kind 11). */
export function openingBody(tensor: Tensor, leaves: readonly number[]): Uint8Array {
  const bytes = bytesOf(tensor);
  const out = Writer.tagged("tensor-opening/1").raw(headerOf(tensor));
  out.list(leaves, (leaf) =>
    out.u64(leaf).raw(bytes.subarray(LEAF_BYTES * leaf).subarray(0, leafLength(tensor, leaf))),
  );
  const opening = out.hashes(multiProof(leafHashes(bytes), leaves)).bytes();
  return new Writer().blob(opening).bytes();
}

/** The answer about a tensor of these bytes: hashes of parts, or a leaf. */
export function tensorAnswer(bytes: Uint8Array, query: Query): Uint8Array {
  if (query.kind === "leaf") {
    const from = LEAF_BYTES * query.leaf;
    return new Writer().blob(bytes.subarray(from, from + LEAF_BYTES)).bytes();
  }
  if (query.kind !== "tensor hashes") return fail(`a query of kind ${query.kind}`);
  const hashes = leafHashes(bytes);
  const parts = partsOf(query.range);
  return concatBytes(...parts.map(({ first, count }) => rootOf(hashes, first, first + count)));
}

/** An answer about one element: values from the prover's operands, openings of the true ones. */
export function answered(
  root: Quantity,
  own: Operands,
  agreed: Operands,
  query: Query,
): Uint8Array {
  if (query.kind === "opening") {
    return openingBody(agreed[query.operand] ?? fail("no operand"), query.leaves);
  }
  if (query.kind !== "values") return fail(`a query of kind ${query.kind}`);
  const values = viewed(root, query, own);
  const dtypes = dtypesOf(root, query, values.length);
  return concatBytes(...values.map((bits, k) => bytesOfBits(dtypes[k] ?? fail("no dtype"), bits)));
}

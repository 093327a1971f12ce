/** From the root of a tree down to one leaf, by the parts of ranges (PROTOCOL 2.4, 5.4, 6.1). */
import { equalBytes } from "../bytes.ts";
import type { Reader } from "../reader.ts";
import { partsOf, rangeHash } from "./parts.ts";
import type { Case, Play } from "./play.ts";
import type { Party, Query, Range } from "./queries.ts";
import { askBoth, askOne, convict, convictWhere, forBoth, type Both } from "./rounds.ts";

/** A tree that parties state hashes of. */
export interface StatedTree {
  readonly leaves: number;
  query(range: Range): Query;
  /** Reads the hashes of so many parts; another number of them is refused. */
  hashes(reader: Reader, parts: number): readonly Uint8Array[];
  /** Whether the hash of all leaves gives what the party has stated of the tree. */
  isRoot(party: Party, hash: Uint8Array): boolean;
  /** What hashes that do not give the hash stated before convict of. */
  readonly clause: string;
}

/** A leaf, and the hash of it that a party has given; undefined of a tree of one leaf. */
export interface Descended<Hashes> {
  readonly leaf: number;
  readonly hashes: Hashes | undefined;
}

const NO_CASE: Case | null = null;

/** The hashes of the parts of a range, as the body of kinds 5 and 8 has them. */
export const plainHashes = (reader: Reader, parts: number): readonly Uint8Array[] =>
  Array.from({ length: parts }, () => reader.hash());

/** The first leaf on which the parties differ; the tree has at least one. */
export function* firstDifference(tree: StatedTree): Play<Descended<Both<Uint8Array>>> {
  let range: Range = { first: 0, count: tree.leaves };
  let known: Both<Uint8Array> | undefined;
  while (range.count > 1) {
    const parts = partsOf(range);
    const stated = yield* askBoth(tree.query(range), (r) => tree.hashes(r, parts.length));
    const { count } = range;
    const before = known;
    const wrong = forBoth((party) => {
      const hash = rangeHash(count, stated[party]);
      return before === undefined ? !tree.isRoot(party, hash) : !equalBytes(hash, before[party]);
    });
    convictWhere(wrong, tree.clause, NO_CASE);
    const differs = (k: number): boolean => !equalBytes(hashAt(stated[0], k), hashAt(stated[1], k));
    const next = parts.findIndex((_, k) => differs(k));
    const part = parts[next];
    if (part === undefined) throw new Error("equal parts of different ranges");
    [range, known] = [part, [hashAt(stated[0], next), hashAt(stated[1], next)]];
  }
  return { leaf: range.first, hashes: known };
}

/** The way of one party down to a leaf of the tree. */
export function* descendTo(
  tree: StatedTree,
  leaf: number,
  party: Party,
): Play<Descended<Uint8Array>> {
  let range: Range = { first: 0, count: tree.leaves };
  let known: Uint8Array | undefined;
  while (range.count > 1) {
    const parts = partsOf(range);
    const stated = yield* askOne(party, tree.query(range), (r) => tree.hashes(r, parts.length));
    const hash = rangeHash(range.count, stated);
    const holds = known === undefined ? tree.isRoot(party, hash) : equalBytes(hash, known);
    if (!holds) throw convict(party, tree.clause, NO_CASE);
    const next = parts.findIndex(({ first, count }) => first <= leaf && leaf < first + count);
    const part = parts[next];
    if (part === undefined) throw new Error("a leaf outside of the tree");
    [range, known] = [part, hashAt(stated, next)];
  }
  return { leaf: range.first, hashes: known };
}

const hashAt = (hashes: readonly Uint8Array[], k: number): Uint8Array =>
  hashes[k] ?? new Uint8Array();

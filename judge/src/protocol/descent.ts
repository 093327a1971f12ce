/** From the root of a tree down to one leaf, by the parts of ranges (PROTOCOL 2.4, 5.4, 6.1). */
import { equalBytes, firstDiffering } from "../bytes.ts";
import type { Reader } from "../reader.ts";
import { partsOf, rangeHash } from "./parts.ts";
import type { Play } from "./play.ts";
import type { Party, Query, Range } from "./queries.ts";
import { askEach, convictWhere, forBoth, PARTIES, type Both } from "./rounds.ts";

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

/** A leaf, and the hash of it that each party asked has given; undefined of a tree of one leaf. */
export interface Descended {
  readonly leaf: number;
  readonly hashes: Both<Uint8Array | undefined>;
}

/** What each party has stated of the parts of a range; undefined of one that is not asked. */
type Stated = Both<readonly Uint8Array[] | undefined>;

/** The hashes of the parts of a range, as the body of kinds 5 and 8 has them. */
export const plainHashes = (reader: Reader, parts: number): readonly Uint8Array[] =>
  Array.from({ length: parts }, () => reader.hash());

/** Whether a party's hash is the one that it has given before, or else gives what is known of the tree. */
export const isHashOf = (
  tree: StatedTree,
  party: Party,
  hash: Uint8Array,
  known: Uint8Array | undefined,
): boolean => (known === undefined ? tree.isRoot(party, hash) : equalBytes(hash, known));

/** Asks these parties for the parts of a range, and goes on in the one that `choose` names. */
function* descend(
  tree: StatedTree,
  parties: readonly Party[],
  choose: (parts: readonly Range[], stated: Stated) => number,
): Play<Descended> {
  let range: Range = { first: 0, count: tree.leaves };
  let hashes: Descended["hashes"] = [undefined, undefined];
  while (range.count > 1) {
    const { count } = range;
    const known = hashes;
    const parts = partsOf(range);
    const query = tree.query(range);
    const stated = yield* askEach(
      forBoth((party) => (parties.includes(party) ? query : undefined)),
      (_, reader) => tree.hashes(reader, parts.length),
    );
    const isFalse = forBoth((party) => {
      const own = stated[party];
      return own !== undefined && !isHashOf(tree, party, rangeHash(count, own), known[party]);
    });
    convictWhere(isFalse, tree.clause, null);
    const next = choose(parts, stated);
    const part = parts[next];
    if (part === undefined) throw new Error("no part to go on in");
    [range, hashes] = [part, forBoth((party) => stated[party]?.[next])];
  }
  return { leaf: range.first, hashes };
}

/** The first leaf on which the parties differ; the tree has at least one. */
export const firstDifference = (tree: StatedTree): Play<Descended> =>
  descend(tree, PARTIES, (_, [a = [], b = []]) => firstDiffering(a, b));

/** The way of one party down to a leaf of the tree. */
export const descendTo = (tree: StatedTree, leaf: number, party: Party): Play<Descended> =>
  descend(tree, [party], (parts) => parts.findIndex(({ first, count }) => leaf < first + count));

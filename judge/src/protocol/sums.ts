/** Sums of blocks of 256, whose terms are formulas or quantities (PROTOCOL 6.6, 6.9). */
import type { Bits } from "../numbers/bits.ts";
import { BLOCK, blockOf, type Terms, type Tree } from "../operators/index.ts";
import {
  claimsAt,
  executed,
  firstDifferent,
  note,
  stated,
  type Below,
  type Dispute,
} from "./below.ts";
import { execute } from "./opening.ts";
import type { Play } from "./play.ts";
import type { View } from "./queries.ts";
import { convictWhere, forBoth, type Both } from "./rounds.ts";

/** How many values a level has (OPENING 2.7); of the terms themselves it is level −1. */
function valuesOfLevel(count: number, level: number): number {
  return level < 0 ? count : Math.ceil(valuesOfLevel(count, level - 1) / BLOCK);
}

/** The least level of at most one value (OPENING 2.8). */
function topLevel(count: number): number {
  let level = 0;
  while (valuesOfLevel(count, level) > 1) level++;
  return level;
}

/** Values that do not sum up to the claim convict; else the first that differs, and its claims. */
function* differing(
  below: Below,
  dispute: Dispute<Tree | Terms>,
  view: View,
  count: number,
  clause: string,
): Play<{ position: number; claims: Both<Bits> }> {
  const { quantity, path, claims } = dispute;
  const { dtype } = quantity;
  const values = yield* stated(below, path, view, Array<typeof dtype>(count).fill(dtype));
  const isFalse = forBoth((party) => blockOf(dtype, values[party]) !== claims[party]);
  if (isFalse[0] || isFalse[1]) note(below, dispute, 0);
  convictWhere(isFalse, clause, "3");
  const position = firstDifferent(values);
  return { position, claims: claimsAt(values, position) };
}

/** Down the levels to one block of terms: its number, and the claims of it (OPENING 4.4.1). */
function* blockOfTerms<Of extends Tree | Terms>(
  below: Below,
  dispute: Dispute<Of>,
): Play<{ index: number; dispute: Dispute<Of> }> {
  const { count } = dispute.quantity;
  let [index, claims] = [0, dispute.claims];
  for (let level = topLevel(count); level > 0; level--) {
    const first = BLOCK * index;
    const values = Math.min(BLOCK, valuesOfLevel(count, level - 1) - first);
    const view: View = { view: "blocks", level, index };
    const next = yield* differing(below, { ...dispute, claims }, view, values, "6.6");
    [index, claims] = [first + next.position, next.claims];
  }
  return { index, dispute: { ...dispute, claims } };
}

/** OPENING 4.4.2: the terms of one block, and the block. */
function* executeBlock(
  below: Below,
  dispute: Dispute<Tree>,
  index: number,
  agreed: readonly Bits[],
): Play<undefined> {
  const { quantity } = dispute;
  const [first, last] = [BLOCK * index, Math.min(BLOCK * (index + 1), quantity.count)];
  const terms =
    first < last ? yield* execute(below.openings, quantity.terms(first, last, agreed)) : [];
  executed(below, dispute, last - first, blockOf(quantity.dtype, terms));
  return undefined;
}

/** OPENING 4.4. */
export function* settleTree(
  below: Below,
  dispute: Dispute<Tree>,
  agreed: readonly Bits[],
): Play<undefined> {
  const block = yield* blockOfTerms(below, dispute);
  return yield* executeBlock(below, block.dispute, block.index, agreed);
}

/** OPENING 4.5: the first term on which the parties differ. */
export function* settleTerms(below: Below, dispute: Dispute<Terms>): Play<Dispute | undefined> {
  const { quantity, path } = dispute;
  const { count, dtype } = quantity;
  if (count === 0) {
    executed(below, dispute, 0, blockOf(dtype, []));
    return undefined;
  }
  const block = yield* blockOfTerms(below, dispute);
  const [first, last] = [BLOCK * block.index, Math.min(BLOCK * (block.index + 1), count)];
  const view: View = { view: "terms", first, last };
  const { position, claims } = yield* differing(below, block.dispute, view, last - first, "6.9");
  const term = first + position;
  const way = [...path, quantity.needs.length + term];
  return { quantity: quantity.term(term), path: way, claims };
}

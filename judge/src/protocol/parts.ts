/** The parts of a range of leaves, and the hash that they give together (PROTOCOL 2.4). */
import { nodeHash, splitOf } from "../merkle.ts";
import type { Range } from "./queries.ts";

/** How often a range is cut for one answer. */
const LEVELS = 5;

/** The ranges of the parts, left to right. A range has at least one leaf. */
export function partsOf({ first, count }: Range, levels = LEVELS): Range[] {
  if (levels === 0 || count === 1) return [{ first, count }];
  const left = splitOf(count);
  return [
    ...partsOf({ first, count: left }, levels - 1),
    ...partsOf({ first: first + left, count: count - left }, levels - 1),
  ];
}

/** The hash of a range by the hashes of its parts, of which there are as many as `partsOf` gives. */
export function rangeHash(count: number, hashes: readonly Uint8Array[]): Uint8Array {
  const given = hashes.values();
  const combine = (leaves: number, levels: number): Uint8Array => {
    if (levels === 0 || leaves === 1) return given.next().value ?? new Uint8Array();
    const left = splitOf(leaves);
    const hash = combine(left, levels - 1);
    return nodeHash(hash, combine(leaves - left, levels - 1));
  };
  return combine(count, LEVELS);
}

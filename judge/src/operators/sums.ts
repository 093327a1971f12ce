/** Elements that are a DOT or a SUM, or a formula over one: what other contracts make otherwise. */
import type { Bits } from "../numbers/bits.ts";
import type { Reading } from "./call.ts";
import type { Node } from "./table.ts";
import type { Of, Opened } from "./parts.ts";

/** The sum of an element, and the formula that goes on from it, if there is one. */
export interface SumElement {
  readonly opened: Opened;
  readonly sum: Of<"dot"> | Of<"tree">;
  readonly number: number;
  readonly over?: Of<"local">;
}

/** The sum that part number `number` is or is made of; undefined where it is none in f32. */
export function sumElement(opened: Opened, number: number): SumElement | undefined {
  const [part, own] = opened.resolved(number);
  if (part.kind === "dot" || (part.kind === "tree" && part.dtype === "f32")) {
    return { opened, sum: part, number: own };
  }
  if (part.kind !== "local") return undefined;
  const [only, ...more] = opened.needed(part, [part.value]);
  if (only === undefined || more.length > 0) return undefined;
  const below = sumElement(opened, only);
  return below === undefined || below.over !== undefined ? undefined : { ...below, over: part };
}

/** What follows the sum, beginning with its value. */
export function* following({ opened, number, over }: SumElement, value: Bits): Reading<Bits> {
  return over === undefined ? value : yield* opened.localOver(over, number, value);
}

/** A node that is no case. */
function decided(opened: Opened, number: number): Node {
  const node = opened.node(number);
  return node.kind === "case" ? decided(opened, opened.evaluation().decided(node)) : node;
}

/**
 * The node of the last term (NUMERICS 13.3): where the formula is, its cases decided, an addition
 * of the sum and of an element that is read, that element.
 */
export function lastTerm({ opened, over }: SumElement): number | undefined {
  if (over === undefined) return undefined;
  const { kind, of } = decided(opened, over.value);
  const [left = 0, right = 0] = of;
  if (kind !== "add") return undefined;
  const kinds = [left, right].map((number) => decided(opened, number).kind).join();
  return kinds === "part,read" ? right : kinds === "read,part" ? left : undefined;
}

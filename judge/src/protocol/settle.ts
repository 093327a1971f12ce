/**
 * From two stated values of a quantity to one execution (PROTOCOL 6.2 to 6.11, OPENING 4). It ends
 * with a conviction, except of a logged quantity: two parties may have different values of it.
 */
import type { Bits } from "../numbers/bits.ts";
import type { Local, Quantity } from "../operators/index.ts";
import { claimsAt, executed, firstDifferent, stated, type Below, type Dispute } from "./below.ts";
import { settleChain } from "./chain.ts";
import { settleExtremum } from "./extremum.ts";
import { settleLogged } from "./logged.ts";
import { execute } from "./opening.ts";
import type { Play } from "./play.ts";
import { settleTerms, settleTree } from "./sums.ts";

/** Settles a dispute; it returns where neither party is wrong (PROTOCOL 6.12). */
export function* settle(below: Below, dispute: Dispute): Play<void> {
  let next: Dispute | undefined = dispute;
  while (next !== undefined) next = yield* narrowed(below, next);
}

/** One quantity: what is disputed of it next, or nothing more. */
function* narrowed(below: Below, dispute: Dispute): Play<Dispute | undefined> {
  const { quantity, path, claims } = dispute;
  const needs = yield* statedNeeds(below, quantity, path);
  if (needs.disputed !== undefined) return needs.disputed;
  const { agreed } = needs;
  switch (quantity.kind) {
    case "local":
      return yield* settleLocal(below, { quantity, path, claims }, agreed);
    case "tree":
      return yield* settleTree(below, { quantity, path, claims }, agreed);
    case "terms":
      return yield* settleTerms(below, { quantity, path, claims });
    case "chain":
      return yield* settleChain(below, { quantity, path, claims }, agreed);
    case "extremum":
      return yield* settleExtremum(below, { quantity, path, claims }, agreed);
    case "logged":
      return yield* settleLogged(below, { quantity, path, claims }, agreed);
  }
}

type Needs =
  | { readonly disputed: Dispute }
  | { readonly disputed?: undefined; readonly agreed: readonly Bits[] };

/** Needs first (OPENING 4.2). */
function* statedNeeds(below: Below, quantity: Quantity, path: readonly number[]): Play<Needs> {
  const { needs } = quantity;
  if (needs.length === 0) return { agreed: [] };
  const dtypes = needs.map(({ dtype }) => dtype);
  const values = yield* stated(below, path, { view: "needs" }, dtypes);
  const first = firstDifferent(values);
  const need = needs[first];
  if (need === undefined) return { agreed: values[0] };
  return { disputed: { quantity: need, path: [...path, first], claims: claimsAt(values, first) } };
}

/** The agreed needs of a quantity whose value is not disputed (PROTOCOL 6.13, OPENING 8.7). */
export function* agreedNeeds(below: Below, quantity: Quantity): Play<readonly Bits[]> {
  const needs = yield* statedNeeds(below, quantity, []);
  if (needs.disputed === undefined) return needs.agreed;
  yield* settle(below, needs.disputed);
  throw new Error("a need that convicted no one");
}

/** OPENING 4.3. */
function* settleLocal(
  below: Below,
  dispute: Dispute<Local>,
  agreed: readonly Bits[],
): Play<undefined> {
  const value = yield* execute(below.openings, dispute.quantity.value(agreed));
  executed(below, dispute, 1, value);
  return undefined;
}

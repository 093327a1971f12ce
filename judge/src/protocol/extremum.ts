/** An extremum: each party's witness, then which is the better one (PROTOCOL 6.8, OPENING 4.7). */
import { numberOf, type Bits } from "../numbers/bits.ts";
import { better, type Extremum } from "../operators/index.ts";
import { note, stated, type Below, type Dispute } from "./below.ts";
import { execute } from "./opening.ts";
import type { Play } from "./play.ts";
import { convictWhere, forBoth, type Both } from "./rounds.ts";

/** The witnesses: those of an argmax are its claims. */
function* witnesses(below: Below, dispute: Dispute<Extremum>): Play<Both<bigint>> {
  const index = (bits: Bits): bigint => BigInt(numberOf("i64", bits));
  const { quantity, path, claims } = dispute;
  if (quantity.extreme === "argmax") return [index(claims[0]), index(claims[1])];
  const [a, b] = yield* stated(below, path, { view: "witness" }, ["i64"]);
  return [index(a[0] ?? 0n), index(b[0] ?? 0n)];
}

export function* settleExtremum(
  below: Below,
  dispute: Dispute<Extremum>,
  agreed: readonly Bits[],
): Play<undefined> {
  const { quantity, claims } = dispute;
  const named = yield* witnesses(below, dispute);
  const isOutside = forBoth((party) => named[party] < 0n || named[party] >= quantity.count);
  if (isOutside[0] || isOutside[1]) note(below, dispute, 0);
  convictWhere(isOutside, "6.8", "3");

  const [first, second] = [Number(named[0]), Number(named[1])];
  const elements = yield* execute(below.openings, quantity.elements([first, second], agreed));
  const [a = 0n, b = 0n] = elements;
  const isIndex = quantity.extreme === "argmax";
  if (!isIndex) {
    const isFalse: Both<boolean> = [claims[0] !== a, claims[1] !== b];
    if (isFalse[0] || isFalse[1]) note(below, dispute, 2);
    convictWhere(isFalse, "6.8", "3");
  }
  // The element of the lower index comes first.
  const winner = first <= second ? better(quantity, a, b) : better(quantity, b, a) === 0 ? 1 : 0;
  note(below, dispute, 2, isIndex ? claims[winner] : undefined);
  convictWhere([winner !== 0, winner !== 1], "6.8", "3");
  return undefined;
}

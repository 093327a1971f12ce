/** The game below one element (OPENING 4): its place, what is open, and the queries of its views. */
import type { Bits } from "../numbers/bits.ts";
import type { Entry, Quantity, QuantityDtype } from "../operators/index.ts";
import type { Found } from "./found.ts";
import type { Openings } from "./opening.ts";
import type { Play } from "./play.ts";
import type { View } from "./queries.ts";
import { askBoth, convictWhere, forBoth, type Both } from "./rounds.ts";
import { shown } from "./shown.ts";
import { valuesOf } from "./values.ts";

/** An element of an output that exists, and all that its game goes with. */
export interface Below {
  readonly output: number;
  readonly element: number;
  /** Step, node and operands. Leaves stay open for all that is below the element (OPENING 5.3). */
  readonly openings: Openings;
  /** Each party's entry for the element (PROTOCOL 6.10); none of a bounded log, or without logs. */
  readonly entries: Both<Entry | undefined>;
  readonly found: Found;
}

/** A quantity of which the parties have stated different values, the claims. */
export interface Dispute<Of extends Quantity = Quantity> {
  readonly quantity: Of;
  readonly path: readonly number[];
  readonly claims: Both<Bits>;
}

/** Both parties' values of a view (PROTOCOL 6.4), of these dtypes. */
export function stated(
  { openings: { step, node }, output, element }: Below,
  path: readonly number[],
  view: View,
  dtypes: readonly QuantityDtype[],
): Play<Both<readonly Bits[]>> {
  return askBoth({ kind: "values", step, node, output, element, path, view }, valuesOf(dtypes));
}

/** The first position at which the parties' values differ; −1 if none. */
export const firstDifferent = ([a, b]: Both<readonly Bits[]>): number =>
  a.findIndex((bits, k) => bits !== b[k]);

/** The same value of each party at a position. */
export const claimsAt = ([a, b]: Both<readonly Bits[]>, position: number): Both<Bits> => [
  a[position] ?? 0n,
  b[position] ?? 0n,
];

/** Notes what decides, and how many terms were executed for it (OPENING 4.9). */
export function note({ found }: Below, dispute: Dispute, terms: number, value?: Bits): void {
  const { dtype, name } = dispute.quantity;
  const [a, b] = dispute.claims;
  const due = value === undefined ? "" : shown(dtype, value);
  found.decided(name, [shown(dtype, a), shown(dtype, b)], due);
  found.terms += terms;
}

/** The value was executed: a party that has claimed another one is convicted (PROTOCOL 6.5). */
export function executed(below: Below, dispute: Dispute, terms: number, value: Bits): void {
  note(below, dispute, terms, value);
  convictWhere(
    forBoth((party) => dispute.claims[party] !== value),
    "6.5",
    "3",
  );
}

/** Plays the game below one element of a test's operands. */
import type { Bits } from "../../src/numbers/bits.ts";
import type { Quantity } from "../../src/operators/index.ts";
import type { Below } from "../../src/protocol/below.ts";
import { Found } from "../../src/protocol/found.ts";
import { Openings } from "../../src/protocol/opening.ts";
import type { Conviction } from "../../src/protocol/play.ts";
import type { Query } from "../../src/protocol/queries.ts";
import { settle } from "../../src/protocol/settle.ts";
import type { Tensor } from "../operators/calls.ts";
import { played } from "./game.ts";
import { digestOf } from "./prover.ts";

export type Operands = readonly (Tensor | null)[];

export interface Prover {
  readonly claim: Bits;
  answer(query: Query): Uint8Array;
}

/** Plays an element; what the game convicts of, and what it found. */
export function play(
  quantity: Quantity,
  operands: Operands,
  position: number,
  output: number,
  provers: readonly [Prover, Prover],
): { convictions: readonly Conviction[]; found: Found } {
  const found = new Found();
  const agreed = operands.map((tensor) => tensor && { type: tensor, digest: digestOf(tensor) });
  const below: Below = {
    output,
    element: position,
    openings: new Openings(0, 0, agreed),
    entries: [undefined, undefined],
    found,
  };
  const claims = [provers[0].claim, provers[1].claim] as const;
  const game = settle(below, { quantity, path: [], claims });
  const { convictions } = played(game, (party, query) => provers[party].answer(query));
  return { convictions, found };
}

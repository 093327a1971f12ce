/** A chain: its first differing state, then one stretch of links (PROTOCOL 6.7, OPENING 4.6). */
import type { Bits } from "../numbers/bits.ts";
import type { Chain } from "../operators/index.ts";
import { claimsAt, executed, firstDifferent, stated, type Below, type Dispute } from "./below.ts";
import { execute } from "./opening.ts";
import type { Play } from "./play.ts";

/** States that one answer has at most (OPENING 1.8). */
const FAN_OUT = 256;

export function* settleChain(
  below: Below,
  dispute: Dispute<Chain>,
  agreed: readonly Bits[],
): Play<undefined> {
  const { quantity, path } = dispute;
  const { stretch, dtype } = quantity;
  let [low, high, state, claims] = [0, quantity.count, quantity.start, dispute.claims];
  while (high - low > stretch) {
    const pieces = Math.ceil((high - low) / stretch);
    const stride = stretch * Math.ceil(pieces / FAN_OUT);
    const positions: number[] = [];
    for (let at = low + stride; at < high; at += stride) positions.push(at);
    const view = { view: "states", first: low, last: high, stride } as const;
    const states = yield* stated(
      below,
      path,
      view,
      positions.map(() => dtype),
    );
    const first = firstDifferent(states);
    if (first >= 0) [high, claims] = [positions[first] ?? high, claimsAt(states, first)];
    // The last position before it is agreed on: both have stated it.
    const last = first < 0 ? positions.length - 1 : first - 1;
    if (last >= 0) [low, state] = [positions[last] ?? low, states[0][last] ?? state];
  }
  const value = yield* execute(below.openings, quantity.links(low, high, state, agreed));
  executed(below, { quantity, path, claims }, (high - low) * quantity.weight, value);
  return undefined;
}

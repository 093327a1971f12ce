/** Different ends: which run should have ended where it did (PROTOCOL 4.7 to 4.11). */
import { equalBytes } from "../bytes.ts";
import { f32OfBits } from "../numbers/bits.ts";
import { canonicalBits, chainDigest, extendLossChain, LOSS_CHAIN } from "../state.ts";
import { tensorDigest } from "../tensors.ts";
import { readLoss, readSlot } from "./bodies.ts";
import type { Play } from "./play.ts";
import type { Party } from "./queries.ts";
import { askOne, convict, type Both } from "./rounds.ts";
import type { Game } from "./run.ts";
import { shownLoss } from "./shown.ts";
import { provesSlotOf } from "./slots.ts";

const STOP_SLOT = "control.stop";
const TRUE = (): Uint8Array => tensorDigest({ dtype: "bool", shape: [] }, Uint8Array.of(1));

/** Convicts a party by the last loss of the shorter run, or by its slot. */
export function* judgeEnds(game: Game, root: Uint8Array): Play<never> {
  const { terms, commitments, found } = game;
  const [{ finalStep: a }, { finalStep: b }] = commitments;
  const ends = Math.min(a, b);
  const [shorter, longer]: Both<Party> = a === ends ? [0, 1] : [1, 0];
  found.step = ends - 1;
  const claimed = [`ends after ${a} steps`, `ends after ${b} steps`] as const;
  if (terms.stopsOnNonFinite) {
    const bits = yield* lastLoss(game, ends - 1, root);
    const isFinite = Number.isFinite(f32OfBits(bits));
    if (!isFinite || !terms.stopsOnSlot) {
      found.decided(null, claimed, shownLoss(bits));
      throw isFinite ? convict(shorter, "4.9", "0") : convict(longer, "4.8", "0");
    }
  }
  const slot = yield* askOne(0, { kind: "slot", step: ends, name: STOP_SLOT }, readSlot);
  if (!provesSlotOf(terms, STOP_SLOT, slot, root)) throw convict(0, "4.11", "0");
  const isStop = equalBytes(slot.digest, TRUE());
  found.decided(null, claimed, `${STOP_SLOT} ${isStop ? "true" : "false"}`);
  throw convict(isStop ? longer : shorter, "4.11", "0");
}

/** The bits of a step's loss, proved by party 0 under the root of the state after it (4.10). */
function* lastLoss({ terms }: Game, step: number, root: Uint8Array): Play<number> {
  const { chain, bits, proof } = yield* askOne(0, { kind: "loss", step }, readLoss);
  const digest = chainDigest(extendLossChain(chain, step, bits));
  const isProved = provesSlotOf(terms, LOSS_CHAIN, { digest, proof }, root);
  if (!isProved || bits !== canonicalBits(bits)) throw convict(0, "4.10", "0");
  return bits;
}

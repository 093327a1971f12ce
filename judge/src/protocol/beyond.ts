/** States that are compared without their log chains, after 6.13 (PROTOCOL 6.14). */
import { firstDiffering } from "../bytes.ts";
import type { Terms } from "../job/terms.ts";
import { LOG_CHAIN } from "../state.ts";
import { readSlot, type SlotProof } from "./bodies.ts";
import type { Play } from "./play.ts";
import { askBoth, convictWhere, forBoth, type Both } from "./rounds.ts";
import { provesSlotOf } from "./slots.ts";

export interface Beyond {
  readonly terms: Terms;
  /** The step that 6.13 has judged. */
  readonly step: number;
  /** The parties' final steps. */
  readonly finals: Both<number>;
  /** The digests of both parties' log chains after that step, as their logs have proved them. */
  readonly after: Both<Uint8Array>;
  /**
   * Each party's root of a state. Of a party that has not stated it yet it is asked for: by kind 1
   * where the state is a common checkpoint, else by kind 2.
   */
  rootsOf(step: number): Play<Both<Uint8Array>>;
}

/** Where the game goes on. */
export type BeyondOutcome =
  | { readonly next: "undecided" }
  /** The states after the smaller final step are equal: 4.7 decides. */
  | { readonly next: "ends" }
  /** §5 and §6 are played for this step; each party has proved this log chain before it. */
  | { readonly next: "step"; readonly step: number; readonly chains: Both<Uint8Array> };

/** Both parties prove their log chains of a state under their own roots of it. */
function* provedChains(at: Beyond, step: number): Play<Both<SlotProof>> {
  const roots = yield* at.rootsOf(step);
  const proved = yield* askBoth({ kind: "slot", step, name: LOG_CHAIN }, readSlot);
  const isFalse = forBoth(
    (party) => !provesSlotOf(at.terms, LOG_CHAIN, proved[party], roots[party]),
  );
  convictWhere(isFalse, "6.14", null);
  return proved;
}

/** The hashes of a proof, as many as the slot has, are what all other slots make: whether they are
 * the same. */
const isSamePath = ([a, b]: Both<SlotProof>): boolean => firstDiffering(a.proof, b.proof) < 0;

/** Compares and halves. A conviction on the way ends the game. */
export function* goBeyond(at: Beyond): Play<BeyondOutcome> {
  const { terms, step, finals } = at;
  const interval = terms.checkpointInterval;
  const end = Math.min(...finals);
  if (isSamePath(yield* provedChains(at, end))) {
    return { next: finals[0] === finals[1] ? "undecided" : "ends" };
  }
  const start = step + 1;
  let chains = at.after;
  const halve = function* (from: number, to: number, each: number): Play<[number, number]> {
    let [lo, hi] = [from, to];
    while (hi - lo > 1) {
      const middle = Math.floor((lo + hi) / 2);
      const proved = yield* provedChains(at, middle * each);
      if (isSamePath(proved)) [lo, chains] = [middle, [proved[0].digest, proved[1].digest]];
      else hi = middle;
    }
    return [lo, hi];
  };
  const [first, last] = yield* halve(
    Math.floor(start / interval),
    Math.ceil(end / interval),
    interval,
  );
  const [found] = yield* halve(
    Math.max(first * interval, start),
    Math.min(last * interval, end),
    1,
  );
  return { next: "step", step: found, chains };
}

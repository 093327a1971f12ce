/** States that are compared without their log chains, after 6.13 (PROTOCOL 6.14). */
import { equalBytes } from "../bytes.ts";
import type { Terms } from "../job/terms.ts";
import type { Reader } from "../reader.ts";
import { LOG_CHAIN, provesSlot } from "../state.ts";
import { readInclusion } from "./bodies.ts";
import type { Play } from "./play.ts";
import { askBoth, convictWhere, forBoth, type Both } from "./rounds.ts";

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

/** The tensor digest of a log chain, and the path of hashes that all other slots make. */
interface ProvedChain {
  readonly digest: Uint8Array;
  readonly path: readonly Uint8Array[];
}

/** The body of kind 7. */
const readChain = (reader: Reader): ProvedChain => ({
  digest: reader.hash(),
  path: readInclusion(reader),
});

/** Both parties prove their log chains of a state under their own roots of it. */
function* provedChains(at: Beyond, step: number): Play<Both<ProvedChain>> {
  const roots = yield* at.rootsOf(step);
  const proved = yield* askBoth({ kind: "slot", step, name: LOG_CHAIN }, readChain);
  const names = [...at.terms.slots.keys()];
  const index = names.indexOf(LOG_CHAIN);
  const isFalse = forBoth((party) => {
    const { digest, path } = proved[party];
    return !provesSlot(LOG_CHAIN, digest, index, names.length, path, roots[party]);
  });
  convictWhere(isFalse, "6.14", null);
  return proved;
}

const isSamePath = ([a, b]: Both<ProvedChain>): boolean =>
  a.path.length === b.path.length &&
  a.path.every((hash, k) => equalBytes(hash, b.path[k] ?? new Uint8Array()));

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

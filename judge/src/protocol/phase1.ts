/** Phase 1: the first diverging step (PROTOCOL 4.1 to 4.5). */
import { equalBytes, firstDiffering } from "../bytes.ts";
import { subtreesOutside } from "../merkle.ts";
import { judgeEnds } from "./ends.ts";
import type { Play } from "./play.ts";
import { forBoth, type Both } from "./rounds.ts";
import type { Game, ProvedCheckpoints, Runs } from "./run.ts";

/** Both parties' roots are equal at lo and differ at hi. */
interface Stretch {
  readonly lo: number;
  readonly hi: number;
}

/** What 4.3 names between lo and hi: ascending, each once, below hi. */
function named({ lo, hi }: Stretch, arity: number): number[] {
  const found = new Set<number>();
  for (let k = 1; k < arity; k++) {
    // k·(hi − lo) is below 2^48, so the quotient is exact enough to round up.
    const at = lo + Math.ceil((k * (hi - lo)) / arity);
    if (at < hi) found.add(at);
  }
  return [...found];
}

/** Narrows a stretch to two neighbours, by the places that `ask` has stated by both (4.3, 4.4). */
function* narrowed(
  start: Stretch,
  arity: number,
  ask: (places: readonly number[]) => Play<void>,
  differ: (place: number) => boolean,
): Play<Stretch> {
  let { lo, hi } = start;
  while (hi - lo > 1) {
    const places = named({ lo, hi }, arity);
    yield* ask(places);
    const first = places.findIndex(differ);
    const end = first < 0 ? places.length : first;
    [lo, hi] = [places[end - 1] ?? lo, places[end] ?? hi];
  }
  return { lo, hi };
}

/** Both prove the indices that not both have proved already (4.3). */
function* proveBoth(runs: Runs, indices: readonly number[]): Play<Both<ProvedCheckpoints>> {
  const left = indices.filter((index) => !runs.of.every((run) => run.hasProved(index)));
  return yield* runs.prove([left, left]);
}

/** 4.2, equal final states: a checkpoint that differs. */
function* differingCheckpoint(
  { arity, commitments }: Game,
  runs: Runs,
  ends: Both<ProvedCheckpoints>,
): Play<Stretch> {
  const size = commitments[0].checkpoints;
  let proofs = ends;
  for (;;) {
    const [a, b] = proofs;
    const subtrees = subtreesOutside(a.indices, size);
    const subtree = subtrees[firstDiffering(a.proof, b.proof)];
    if (subtree === undefined) throw new Error("equal proofs of different runs");
    const indices = named({ lo: subtree.first - 1, hi: subtree.end }, arity);
    proofs = yield* proveBoth(runs, indices);
    const hi = indices.find((index) => runs.differAt(runs.of[0].stepOf(index)));
    if (hi !== undefined) return { lo: 0, hi };
  }
}

/** The index of the last common checkpoint (4.1). */
function lastCommon({ terms, commitments: [a, b] }: Game): number {
  if (a.finalStep === b.finalStep) return a.checkpoints - 1;
  return Math.floor(Math.min(a.finalStep, b.finalStep) / terms.checkpointInterval);
}

/** The checkpoint of 4.2 at which the roots differ; none where there is nothing to search. */
function* rangeOf(
  game: Game,
  runs: Runs,
  ends: Both<ProvedCheckpoints>,
): Play<Stretch | undefined> {
  const [a, b] = game.commitments;
  const hi = lastCommon(game);
  if (a.finalStep === b.finalStep) {
    if (equalBytes(a.finalStateRoot, b.finalStateRoot)) {
      return yield* differingCheckpoint(game, runs, ends);
    }
    return { lo: 0, hi };
  }
  const missing = forBoth((party) => (runs.of[party].hasProved(hi) ? [] : [hi]));
  yield* runs.prove(missing);
  return runs.differAt(runs.of[0].stepOf(hi)) ? { lo: 0, hi } : undefined;
}

/** 4.4: the step between two states of which both have stated roots. */
function* stepBetween(game: Game, runs: Runs, between: Stretch): Play<number> {
  game.found.interval = [between.lo, between.hi];
  const { lo } = yield* narrowed(
    between,
    game.arity,
    (steps) => runs.state([steps, steps]),
    (step) => runs.differAt(step),
  );
  return lo;
}

/** 4.7: where the shorter run ends. */
function* afterCommon(game: Game, runs: Runs): Play<number> {
  const [a, b] = game.commitments;
  const end = Math.min(a.finalStep, b.finalStep);
  const longer = a.finalStep === end ? 1 : 0;
  const from = lastCommon(game) * game.terms.checkpointInterval;
  if (end > from) {
    yield* runs.state(forBoth((party) => (party === longer ? [end] : [])));
    if (runs.differAt(end)) return yield* stepBetween(game, runs, { lo: from, hi: end });
  }
  return yield* judgeEnds(game, runs.rootsOf(end)[0]);
}

/** The first diverging step t: roots of state[t] are equal, those of state[t + 1] differ (4.5). */
export function* divergingStep(
  game: Game,
  runs: Runs,
  ends: Both<ProvedCheckpoints>,
): Play<number> {
  game.found.phase = 1;
  const range = yield* rangeOf(game, runs, ends);
  if (range === undefined) return yield* afterCommon(game, runs);
  const stepOf = (index: number): number => runs.of[0].stepOf(index);
  const { lo, hi } = yield* narrowed(
    range,
    game.arity,
    function* (indices) {
      yield* proveBoth(runs, indices);
    },
    (index) => runs.differAt(stepOf(index)),
  );
  return yield* stepBetween(game, runs, { lo: stepOf(lo), hi: stepOf(hi) });
}

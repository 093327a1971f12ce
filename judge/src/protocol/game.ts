/** The whole game: its phases one after the other (PROTOCOL 1.6, 3.6, 6.14). */
import { goBeyond, type Beyond } from "./beyond.ts";
import { judgeEnds } from "./ends.ts";
import { agree, proveEnds } from "./phase0.ts";
import { divergingStep } from "./phase1.ts";
import { playStep, type DisputedStep, type StepOutcome } from "./phase2.ts";
import type { Play } from "./play.ts";
import { forBoth, type Both } from "./rounds.ts";
import { Runs, type Game } from "./run.ts";

/** How a game ends that convicts no party. */
export type GameEnd = "agreement" | "undecided";

/** A step, and each party's roots before and after it. */
function stepAt(
  { terms, found }: Game,
  runs: Runs,
  step: number,
  provedChains: Both<Uint8Array> | null,
): DisputedStep {
  return {
    terms,
    step,
    program: terms.step(step).program,
    before: runs.rootsOf(step),
    after: runs.rootsOf(step + 1),
    found,
    provedChains,
  };
}

/**
 * Parties state their roots of a state up to the smaller final step, as far as they have not yet
 * (6.14). A common checkpoint has its index times the interval as its step, or is the last one of
 * both, whose roots are known (4.1, 3.3).
 */
function* rootsOf({ terms }: Game, runs: Runs, step: number): Play<Both<Uint8Array>> {
  const index = step / terms.checkpointInterval;
  const isKnown = forBoth((party) => runs.of[party].rootOf(step) !== undefined);
  const wanted = (place: number): Both<readonly number[]> =>
    forBoth((party) => (isKnown[party] ? [] : [place]));
  if (Number.isInteger(index)) yield* runs.prove(wanted(index));
  else yield* runs.state(wanted(step));
  return runs.rootsOf(step);
}

/** Plays a game. Convictions end it by an exception. */
export function* playGame(game: Game): Play<GameEnd> {
  const { commitments, found, terms } = game;
  const runs = new Runs(game);
  const ends = yield* proveEnds(game, runs);
  if (agree(game)) return "agreement";
  let step = yield* divergingStep(game, runs, ends);
  let outcome: StepOutcome = yield* playStep(stepAt(game, runs, step, null));
  while (outcome !== "undecided") {
    found.phase = 1;
    const beyond: Beyond = {
      terms,
      step,
      finals: [commitments[0].finalStep, commitments[1].finalStep],
      after: outcome.logChains,
      rootsOf: (state) => rootsOf(game, runs, state),
    };
    const goesOn = yield* goBeyond(beyond);
    if (goesOn.next === "undecided") return "undecided";
    const end = Math.min(...beyond.finals);
    if (goesOn.next === "ends") return yield* judgeEnds(game, runs.rootsOf(end)[0]);
    step = goesOn.step;
    found.restart();
    outcome = yield* playStep(stepAt(game, runs, step, goesOn.chains));
  }
  return "undecided";
}

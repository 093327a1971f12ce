/** Phase 0: commitments and genesis (PROTOCOL 3). */
import { equalBytes } from "../bytes.ts";
import type { RunCommitment } from "../commitment.ts";
import type { Terms } from "../job/terms.ts";
import { checkpointCount } from "../runs.ts";
import type { Play } from "./play.ts";
import { convict, convictEach, convictWhere, forBoth, type Both } from "./rounds.ts";
import type { Game, ProvedCheckpoints, Runs } from "./run.ts";

/** Whether a run of the job can have these numbers (3.2). */
function isRunOf(terms: Terms, { finalStep, checkpoints }: RunCommitment): boolean {
  const least = terms.stopsOnNonFinite || terms.stopsOnSlot ? 1 : terms.steps;
  const isEnd = finalStep >= least && finalStep <= terms.steps;
  return isEnd && checkpoints === checkpointCount(finalStep, terms.checkpointInterval);
}

/** Both parties prove their first and last checkpoints (3.2 to 3.5). */
export function* proveEnds(game: Game, runs: Runs): Play<Both<ProvedCheckpoints>> {
  const { terms, commitments } = game;
  convictWhere(
    forBoth((party) => !isRunOf(terms, commitments[party])),
    "3.2",
    "0",
  );
  const ends = forBoth((party) => {
    const last = commitments[party].checkpoints - 1;
    return last === 0 ? [0] : [0, last];
  });
  const proofs = yield* runs.prove(ends);
  convictEach((party) => {
    const run = runs.of[party];
    const { finalStep, finalStateRoot } = commitments[party];
    const isRoot = (step: number, root: Uint8Array): boolean =>
      equalBytes(run.rootOf(step) ?? new Uint8Array(), root);
    if (!isRoot(0, terms.genesisRoot)) return convict(party, "3.4", "0");
    return isRoot(finalStep, finalStateRoot) ? undefined : convict(party, "3.5", "0");
  });
  return proofs;
}

/** Whether the commitments name the same run (3.6). */
export function agree({ commitments: [a, b] }: Game): boolean {
  return equalBytes(a.runRoot, b.runRoot) && a.finalStep === b.finalStep;
}

/** A session's log as facts for programs, by the names of docs/INTERFACE.md (`referee`, `inspect`). */

import type { SessionOutcome } from "../session/log.ts";
import { keyId } from "./names.ts";
import { partiesOf } from "./sessions.ts";

/** By the outcome of the entry of kind 12 (PROTOCOL 12.2). */
const RESULTS = ["none accepted", "accepted", "uncontested", "one party alone", "no result"];
const UNCONTESTED = 2;
/** By the outcome of the entry of kind 11. */
const VERDICTS = ["convicted", "undecided", "no verdict"];

/** What became of a party, by the reason why it is out. */
function stateOf(reason: string | undefined): string {
  if (reason === undefined) return "left";
  if (reason.startsWith("game ")) return "lost";
  return reason === "unopened" ? "never opened" : "excluded";
}

/** The key ids that a lost game, or two messages in the place of one, has convicted. */
function convictedOf(outcome: SessionOutcome): string[] {
  return partiesOf(outcome).flatMap(({ key, id }) =>
    ["lost", "excluded"].includes(stateOf(outcome.removed[key])) ? [id] : [],
  );
}

/** 0: all parties have one claim. 1: a party or the referee is convicted. 2: anything else. */
export function sessionCode(outcome: SessionOutcome): 0 | 1 | 2 {
  if (outcome.wrong === "convicted") return 1;
  if (outcome.wrong !== "") return 2;
  if (convictedOf(outcome).length > 0) return 1;
  return outcome.result?.[0] === UNCONTESTED ? 0 : 2;
}

/** What a log of so many entries says about a session of this job. */
export function sessionFacts(outcome: SessionOutcome, entries: number, jobDigest: string): object {
  const { games, result, removed, wrong, index, clause } = outcome;
  return {
    kind: "session",
    job_digest: jobDigest,
    state: outcome.state,
    finished: outcome.state === "ended",
    outcome: result === null ? null : (RESULTS[result[0]] ?? null),
    accepted_commitment: result !== null && [1, UNCONTESTED].includes(result[0]) ? result[1] : null,
    convicted: convictedOf(outcome),
    parties: partiesOf(outcome).map(({ key, id }) => ({
      key_id: id,
      state: stateOf(removed[key]),
    })),
    games: games.map(([a, b, ended, bits], game) => {
      const ids = [keyId(a), keyId(b)];
      const convicted = ids.filter((_, party) => ((bits >> party) & 1) === 1);
      return { game, parties: ids, outcome: VERDICTS[ended] ?? null, convicted };
    }),
    rounds: outcome.rounds,
    entries,
    deviation: wrong === "convicted" ? { index, clause } : null,
    damage: wrong === "damaged" || wrong === "refused" ? { index, why: wrong } : null,
  };
}

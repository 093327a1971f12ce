/** What a convicted party did, by the clause of PROTOCOL that convicts it, for people who know no
 * machine learning. */

/**
 * What a conviction is about, which decides how a sentence names the place: what the party signed
 * for one step (`step`); a signed answer of the game (`answer`); where the run ended (`end`); the
 * run as a whole (`whole`); no answer (`silence`).
 */
export type Kind = "step" | "answer" | "end" | "whole" | "silence";

export interface Act {
  /** Goes on from the party's name: "Alice signed other data than the job's". It says what was
   * signed, for a signature does not show why. Reports say it in the same words, so that a page's
   * own judge can compare its verdict with the page's headline. */
  readonly did: string;
  /** What follows from it for someone who ordered the run or was handed its result. */
  readonly means: string;
  readonly kind: Kind;
}

const ANOTHER_RECIPE =
  "As signed, that run followed another recipe. It is not the run that was ordered.";
export const BUILT_ON =
  "Each later step builds on this one. So the signed run is not the one that the job describes.";
const TWO_TRUTHS =
  "At least one of its signed statements is false. So nothing that rests on that run can be relied on.";
const EXCUSE =
  "A log of roundings states choices that the rules allow. This entry states none, or is missing " +
  "where a choice was made.";
const OTHER_LENGTH = "That run did not do the work that was ordered, or did more than was ordered.";

const act = (kind: Kind, did: string, means: string): Act => ({ kind, did, means });
const PROGRAM = act("step", "signed other operations than the job's", ANOTHER_RECIPE);
const SUM = act("step", "signed a false sum", BUILT_ON);
const UNKNOWN = act("step", "signed a false statement", TWO_TRUTHS);

/** By clause; a case of PROTOCOL 1.6 behind a stroke where a clause has several meanings. */
const ACTS: Readonly<Record<string, Act>> = {
  "2.7": act(
    "answer",
    "signed an answer that does not fit the question",
    "It had to show its work, and signed something else in its place.",
  ),
  "2.8": act(
    "answer",
    "signed that it cannot answer a question about its own run",
    "Whoever has run the job can answer every question about that run. A run that its own signer " +
      "cannot show is not accepted.",
  ),
  "2.9": act(
    "answer",
    "signed two different answers to one question",
    "One of the two must be false, whichever it is.",
  ),
  "2.10": act(
    "silence",
    "did not answer",
    "Nothing that it has signed is shown to be false here. That it was silent is the referee's " +
      "word, and is worth as much as you trust that referee.",
  ),
  "3.2": act("whole", "signed a run of a length that the job does not allow", OTHER_LENGTH),
  "3.3": act("whole", "gave a false proof of the states that it signed", TWO_TRUTHS),
  "3.4": act(
    "whole",
    "signed another starting model than the job's",
    "Everything after a wrong start is another run than the one that was ordered.",
  ),
  "3.5": act(
    "whole",
    "signed a final model that is not the last one of its own run",
    "The model that it hands over is not the one that its run led to.",
  ),
  "4.8": act(
    "end",
    "signed a run that goes on after the job's end",
    "The result is that of a longer run than the job allows.",
  ),
  "4.9": act(
    "end",
    "signed a run that stops before the job's end",
    "As signed, work that was ordered was not done. The model is not the one that the job describes.",
  ),
  "4.10": act("answer", "gave a false proof of its loss", TWO_TRUTHS),
  "4.11": act(
    "end",
    "signed a run that ends at another step than the job's own stopping rule says",
    "The result is that of a run of another length than the job demands.",
  ),
  "5.2": PROGRAM,
  "5.3": act(
    "step",
    "signed statements that contradict each other",
    "The result that it signed is not the result of the work that it signed.",
  ),
  "5.3/1": PROGRAM,
  "5.4": act("answer", "gave fingerprints that contradict each other", TWO_TRUTHS),
  "5.5": act("answer", "showed an operation that is not the one it signed for", TWO_TRUTHS),
  "5.5/1": PROGRAM,
  "5.6.1": act(
    "step",
    "signed a step that does not start where the one before ended",
    "As signed, that step goes on from other numbers than those at which the run had arrived. What " +
      "comes after is not the ordered run.",
  ),
  "5.6.2": act("step", "signed two versions of one result", BUILT_ON),
  "5.6.2/1": PROGRAM,
  "5.6.3": act(
    "step",
    "signed other data than the job's",
    "As signed, the run has used data that are not those that were ordered, or in another order. " +
      "That is not the run that the job describes.",
  ),
  "5.6.4": act(
    "step",
    "signed another setting than the job's",
    "As signed, the run has used another setting, or another source of random numbers, than the " +
      "job fixes. That is not the run that the job describes.",
  ),
  "5.6.6": act("answer", "gave a false proof of what went into a step", TWO_TRUTHS),
  "5.8": act(
    "step",
    "signed another end of a step than its own numbers give",
    "The numbers of that step and its signed end do not fit each other. Nothing that rests on that " +
      "run can be relied on.",
  ),
  "6.1": act("answer", "showed numbers that are not the ones it signed for", TWO_TRUTHS),
  "6.1/3": act("step", "signed a number in a form that the job's arithmetic never gives", BUILT_ON),
  "6.5": act("step", "signed a false result of a calculation", BUILT_ON),
  "6.6": SUM,
  "6.8": act("step", "signed a false greatest or least number", BUILT_ON),
  "6.9": SUM,
  "6.10": act(
    "step",
    "showed a log of roundings that is not the one it signed for",
    "Nothing that the log should excuse can be relied on.",
  ),
  "6.11": act("step", "signed a number that its own log of roundings does not give", BUILT_ON),
  "6.13": act("step", "signed a false entry in its log of roundings", EXCUSE),
  "6.13/1": PROGRAM,
  "6.14": act("answer", "gave a false proof about its log of roundings", TWO_TRUTHS),
};

/** What a conviction says; what holds for all of them, for a clause that is not in the table. */
export function actOf(clause: string, caseOf: string): Act {
  return ACTS[`${clause}/${caseOf}`] ?? ACTS[clause] ?? UNKNOWN;
}

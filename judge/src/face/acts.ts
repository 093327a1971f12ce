/** What a convicted party did, by the clause of PROTOCOL that convicts it, for people who know no
 * machine learning. */

/**
 * What a conviction is about, which decides how a sentence names the place: what the party signed
 * for one step (`step`); a signed answer of the game (`answer`); where the run ended (`end`); the
 * run as a whole (`whole`); no answer (`silence`).
 */
export type Kind = "step" | "answer" | "end" | "whole" | "silence";

export interface Act {
  /** Goes on from the party's name: "Alice trained on other data than the job's". */
  readonly did: string;
  /** What follows from it for someone who ordered the run or was handed its result. */
  readonly means: string;
  readonly kind: Kind;
}

const ANOTHER_RECIPE = "That run followed another recipe. Its model is not the one ordered.";
const BUILT_ON =
  "Each later step builds on this one. So the model at the end of that run is not the one that the " +
  "job describes.";
const TWO_TRUTHS =
  "At least one of its signed statements is false. So nothing that rests on that run can be relied on.";
const NO_WORK =
  "Whoever does the work keeps what repeats it. That run's result has no work to stand on.";
const EXCUSE =
  "The log of roundings is there to excuse small differences. This one excuses what the rules forbid.";
const OTHER_LENGTH = "That run did not do the work that was ordered, or did more than was ordered.";

const act = (kind: Kind, did: string, means: string): Act => ({ kind, did, means });
const PROGRAM = act("step", "ran another program than the job's", ANOTHER_RECIPE);
const SUM = act("step", "signed a false sum", BUILT_ON);
const UNKNOWN = act("step", "signed a false statement", TWO_TRUTHS);

/** By clause; a case of PROTOCOL 1.6 behind a stroke where a clause has several meanings. */
const ACTS: Readonly<Record<string, Act>> = {
  "2.7": act(
    "answer",
    "signed an answer that does not fit the question",
    "It had to show its work, and signed something else in its place.",
  ),
  "2.8": act("answer", "signed that it cannot answer a question about its own run", NO_WORK),
  "2.9": act(
    "answer",
    "signed two different answers to one question",
    "One of the two must be false, whichever it is.",
  ),
  "2.10": act(
    "silence",
    "did not answer in time, by a referee's word",
    "Nothing that it has signed is shown to be false here. That it was silent is the referee's " +
      "word, and is worth as much as you believe that referee.",
  ),
  "3.2": act("whole", "signed a run of a length that the job does not allow", OTHER_LENGTH),
  "3.3": act("whole", "could not show the states that it signed for", TWO_TRUTHS),
  "3.4": act(
    "whole",
    "started from another model than the job's",
    "Everything after a wrong start is another run than the one that was ordered.",
  ),
  "3.5": act(
    "whole",
    "signed a final model that is not the last one of its own run",
    "The model that it hands over is not the one that its run led to.",
  ),
  "4.8": act(
    "end",
    "trained on after the job's end",
    "The result is that of a longer run than the job allows.",
  ),
  "4.9": act(
    "end",
    "stopped before the job's end",
    "Work that was ordered was not done. The model is not the one that the job describes.",
  ),
  "4.10": act("answer", "gave a false proof of its loss", TWO_TRUTHS),
  "4.11": act(
    "end",
    "ended its run at another step than the job's own stopping rule does",
    "The result is that of a run of another length than the job demands.",
  ),
  "5.2": PROGRAM,
  "5.3": act("step", "cannot show how it came to the state that it signed", NO_WORK),
  "5.3/1": PROGRAM,
  "5.4": act("answer", "gave fingerprints that contradict each other", TWO_TRUTHS),
  "5.5": act("answer", "showed an operation that is not the one it signed for", TWO_TRUTHS),
  "5.5/1": PROGRAM,
  "5.6.1": act(
    "step",
    "changed the model between two steps",
    "It went on from other numbers than those at which it had arrived. What came after is not the " +
      "ordered run.",
  ),
  "5.6.2": act("step", "replaced a result on its way to the next operation", BUILT_ON),
  "5.6.2/1": PROGRAM,
  "5.6.3": act(
    "step",
    "trained on other data than the job's",
    "The model has learned from examples that are not those that were ordered, or in another " +
      "order. It is not the model that the job describes.",
  ),
  "5.6.4": act(
    "step",
    "trained with another setting than the job's",
    "It used another setting or another random number than the job fixes. Its model is not the one " +
      "that was ordered.",
  ),
  "5.6.6": act("answer", "gave a false proof of what went into a step", TWO_TRUTHS),
  "5.8": act(
    "step",
    "recorded another end of a step than its own numbers give",
    "Either the results or the record was altered after the work. That run cannot be relied on.",
  ),
  "6.1": act("answer", "showed numbers that are not the ones it signed for", TWO_TRUTHS),
  "6.1/3": act("step", "signed a number that no honest run has", BUILT_ON),
  "6.5": act("step", "signed a falsely computed number", BUILT_ON),
  "6.6": SUM,
  "6.8": act("step", "signed a false greatest or least number", BUILT_ON),
  "6.9": SUM,
  "6.10": act(
    "step",
    "showed a log of roundings that is not the one it signed for",
    "Nothing that the log should excuse can be relied on.",
  ),
  "6.11": act("step", "signed a number that its own log of roundings does not give", BUILT_ON),
  "6.13": act("step", "wrote a false entry into its log of roundings", EXCUSE),
  "6.13/1": PROGRAM,
  "6.14": act("answer", "gave a false proof about its log of roundings", TWO_TRUTHS),
};

/** What a conviction says; what holds for all of them, for a clause that is not in the table. */
export function actOf(clause: string, caseOf: string): Act {
  return ACTS[`${clause}/${caseOf}`] ?? ACTS[clause] ?? UNKNOWN;
}

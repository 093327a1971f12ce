/** What a convicted party did, by the clause of PROTOCOL that convicts it, for people who know no
 * machine learning. */

export interface Act {
  /** Goes on from the party's name: "Alice used other training data than the job names". */
  readonly did: string;
  /** What follows from it for someone who ordered the run or was handed its result. */
  readonly means: string;
}

const COMPUTED: Act = {
  did: "signed the result of a calculation that is wrong",
  means:
    "Each later step builds on this one. So the model at the end of that run is not the one that " +
    "the job describes.",
};
const SIGNED: Act = {
  did: "signed statements about its own run that do not fit together",
  means: "At least one of them is false. So nothing that rests on that run can be relied on.",
};
const UNOPENED: Act = {
  did: "could not show the work behind the result that it had signed",
  means: "Whoever does the work keeps what repeats it. That run's result has no work to stand on.",
};
const LOG: Act = {
  did: "signed a record of its roundings that the job's rules do not allow, or that it had not fixed",
  means: "The record is there to excuse small differences. This one excuses what the rules forbid.",
};
const STRUCTURE: Act = {
  did: "carried out other operations than the job's program lists",
  means: "That run followed another recipe. Its model is not the one that was ordered.",
};
const LENGTH: Act = {
  did: "signed a run of another length than the job demands",
  means: "That run did not do the work that was ordered, or did more than was ordered.",
};

/** By clause; a case of PROTOCOL 1.6 behind a stroke where a clause has several meanings. */
const ACTS: Readonly<Record<string, Act>> = {
  "2.7": {
    did: "signed an answer that is not in the form that the rules demand",
    means: "It had to show its work, and signed something else in its place.",
  },
  "2.8": {
    did: "signed that it cannot answer a question about its own run",
    means: UNOPENED.means,
  },
  "2.9": {
    did: "signed two different answers to one question",
    means: "One of the two must be false, whichever it is.",
  },
  "2.10": {
    did: "did not answer in time, by the word of a referee",
    means:
      "Nothing that it has signed is shown to be false here. That it was silent is the referee's " +
      "word, and is worth as much as you believe that referee.",
  },
  "3.2": LENGTH,
  "3.3": SIGNED,
  "3.4": {
    did: "did not start from the model that the job names",
    means: "Everything after a wrong start is another run than the one that was ordered.",
  },
  "3.5": {
    did: "signed a final model that is not the last one of its own run",
    means: "The model that it hands over is not the one that its run led to.",
  },
  "4.8": {
    did: "went on after the point at which the job says a run must end",
    means: "The result is that of a longer run than the job allows.",
  },
  "4.9": {
    did: "stopped before the job was done",
    means: "Work that was ordered was not done. The model is not the one that the job describes.",
  },
  "4.10": {
    did: "showed a false value for how well the model did when its run ended",
    means: SIGNED.means,
  },
  "4.11": {
    did: "did not end its run where the job's own rule for stopping says so",
    means: "The result is that of a run of another length than the job demands.",
  },
  "5.2": STRUCTURE,
  "5.3": UNOPENED,
  "5.3/1": STRUCTURE,
  "5.4": SIGNED,
  "5.5": SIGNED,
  "5.5/1": STRUCTURE,
  "5.6.1": {
    did: "went on from other numbers than those at which it had arrived",
    means:
      "Between two steps the model was exchanged or altered. What came after is not the ordered run.",
  },
  "5.6.2": {
    did: "put another number into a calculation than the one that came out of the step before it",
    means: COMPUTED.means,
  },
  "5.6.2/1": STRUCTURE,
  "5.6.3": {
    did: "used other training data than the job names",
    means:
      "The model has learned from examples that are not those that were ordered, or in another " +
      "order. It is not the model that the job describes.",
  },
  "5.6.4": {
    did: "used another setting or another random number than the job fixes",
    means: "That run followed other settings. Its model is not the one that was ordered.",
  },
  "5.6.6": SIGNED,
  "5.8": {
    did: "signed a summary of a step that does not follow from the step's own results",
    means:
      "Either the results or the summary was altered after the work. That run cannot be relied on.",
  },
  "6.1": SIGNED,
  "6.1/3": COMPUTED,
  "6.5": SIGNED,
  "6.5/3": COMPUTED,
  "6.6": COMPUTED,
  "6.7": COMPUTED,
  "6.8": COMPUTED,
  "6.9": COMPUTED,
  "6.10": LOG,
  "6.11": {
    did: "signed a result that no allowed rounding gives",
    means: COMPUTED.means,
  },
  "6.13": LOG,
  "6.13/1": STRUCTURE,
  "6.14": SIGNED,
};

/** What a conviction says; the general sentence for a clause that has none of its own. */
export function actOf(clause: string, caseOf: string): Act {
  return ACTS[`${clause}/${caseOf}`] ?? ACTS[clause] ?? SIGNED;
}

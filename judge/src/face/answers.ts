/** What a convicted party did, where the job is one answer of a model or one encoding: nothing is
 * trained, there is one step, and its data are the text. */

import { actOf, BUILT_ON, type Act, type Kind } from "./acts.ts";
import type { Work } from "./work.ts";

const act = (kind: Kind, did: string, means: string): Act => ({ kind, did, means });

const OTHER = "signed other operations than the model's";
const TWO_TRUTHS =
  "At least one of its signed statements is false. So nothing that rests on them can be relied on.";
const FOLLOWS =
  "The rest of the work builds on it. So the signed run is not the one that the job describes.";
const program = (means: string): Act => act("step", OTHER, means);
const DRAWN = program(
  "The job lists every operation by which the model reads the text and draws each piece (token) of " +
    "the answer, in order. The signed work has another one.",
);
const READ = program(
  "The job lists every operation by which the model reads the text, in order. The signed work has " +
    "another one.",
);

/** By clause; a case of PROTOCOL 1.6 after a slash where a clause has several meanings. */
const OF_ANSWER: Readonly<Record<string, Act>> = {
  "3.2": act(
    "whole",
    "signed a run of a length that the job does not allow",
    "An answer is computed in one go, and its run has exactly one step.",
  ),
  "3.4": act(
    "whole",
    "signed another model than the job's",
    "The job fixes every number of the model. So this is the answer of another model.",
  ),
  "3.5": act(
    "whole",
    "signed a result that is not that of its own run",
    "The result that it signed and the end of its signed run are two different ones.",
  ),
  "5.2": DRAWN,
  "5.3": act(
    "step",
    "signed statements about its answer that contradict each other",
    "The answer that it signed is not the result of the work that it signed.",
  ),
  "5.3/1": DRAWN,
  "5.5/1": DRAWN,
  "5.6.1": act(
    "step",
    "signed an answer that does not come from the job's model",
    "The job fixes every number of the model. The signed work goes on with other ones.",
  ),
  "5.6.2": act(
    "step",
    "signed two versions of one result",
    "An operation must take what an earlier one has computed. In the signed work it takes something " +
      "else.",
  ),
  "5.6.2/1": DRAWN,
  "5.6.3": act(
    "step",
    "signed an answer to another text, or by other settings, than the job's",
    "The job fixes the prompt, the answer before each of its pieces (tokens), and the settings by " +
      "which they are drawn. What was signed is not the answer that the job describes.",
  ),
  "5.6.4": act(
    "step",
    "signed an answer by other random numbers than the job's",
    "The job fixes the source of the random numbers by which the answer is drawn. The party signed " +
      "another one, and with it another draw.",
  ),
  "5.6.6": act("answer", "gave a false proof of what went into its answer", TWO_TRUTHS),
  "5.8": act(
    "step",
    "signed another end of its work than its own numbers give",
    "At the end stands what was drawn, and how likely all of it was. What was signed there is not " +
      "what its own numbers give.",
  ),
  "6.13/1": DRAWN,
};

/** What differs of an encoding: it draws nothing, and its result is numbers. */
const OF_ENCODING: Readonly<Record<string, Act>> = {
  "3.2": act(
    "whole",
    "signed a run of a length that the job does not allow",
    "What a model makes of a text is computed in one go, and the run has exactly one step.",
  ),
  "3.4": act(
    "whole",
    "signed another model than the job's",
    "The job fixes every number of the model. So this is the result of another model.",
  ),
  "5.2": READ,
  "5.3": act(
    "step",
    "signed statements about its result that contradict each other",
    "The numbers that it signed are not the result of the work that it signed.",
  ),
  "5.3/1": READ,
  "5.5/1": READ,
  "5.6.1": act(
    "step",
    "signed numbers that do not come from the job's model",
    "The job fixes every number of the model. The signed work goes on with other ones.",
  ),
  "5.6.2/1": READ,
  "5.6.3": act(
    "step",
    "signed the result of another text than the job's",
    "The job fixes the text. What was signed is not the result that the job describes.",
  ),
  "5.6.4": act(
    "step",
    "signed other random numbers than the job's",
    "The job fixes the source of random numbers, where any are used. The party signed another one.",
  ),
  "5.6.6": act("answer", "gave a false proof of what went into its result", TWO_TRUTHS),
  "5.8": act(
    "step",
    "signed another end of its work than its own numbers give",
    "At the end stand the numbers that the model made of the text, and their sum. What was signed " +
      "there is not what its own numbers give.",
  ),
  "6.13/1": READ,
};

const TABLES: Readonly<Record<Work, readonly Readonly<Record<string, Act>>[]>> = {
  training: [],
  answer: [OF_ANSWER],
  encoding: [OF_ENCODING, OF_ANSWER],
};

/** What a conviction says in a dispute about such work. */
export function actAbout(work: Work, clause: string, caseOf: string): Act {
  const tables = TABLES[work];
  for (const key of [`${clause}/${caseOf}`, clause]) {
    const found = tables.map((table) => table[key]).find((one) => one !== undefined);
    if (found !== undefined) return found;
  }
  const found = actOf(clause, caseOf);
  return work !== "training" && found.means === BUILT_ON ? { ...found, means: FOLLOWS } : found;
}

/** Why something was not judged, in a sentence for people. */

import { RefusedError } from "../errors.ts";

/** Refusals after which a reader can do something. */
const HINTS: Readonly<Record<string, string>> = {
  "a forfeit of a referee who is not believed":
    "The game ended by silence, which rests on a referee's word alone. If you believe that referee, " +
    "give its public key too.",
  "evidence of another job": "The evidence is about another job than this one.",
};

/** A sentence for whatever stopped the judging. A failure of the judge is said to be one. */
export function sentenceOf(error: unknown): string {
  if (!(error instanceof RefusedError)) return "The judge itself has failed at this.";
  const { message } = error;
  return HINTS[message] ?? message;
}

/** Why something was not judged, in a sentence for people. */

import { RefusedError } from "../errors.ts";

/** What a judge says of a silence that nobody whom it believes has signed (PROTOCOL 2.10). */
const NOT_BELIEVED = "a forfeit of a referee who is not believed";

/** Refusals after which a reader can do something. */
const HINTS: Readonly<Record<string, string>> = {
  [NOT_BELIEVED]:
    "The dispute ended by silence, which rests on a referee's word alone. If you trust that referee, " +
    "give its public key too.",
  "evidence of another job": "The evidence is about another job than this one.",
};

/** A sentence for whatever stopped the judging. A failure of the judge is said to be one. */
export function sentenceOf(error: unknown): string {
  if (!(error instanceof RefusedError)) return "The judge itself has failed at this.";
  const { message } = error;
  return HINTS[message] ?? message;
}

/** Whether all that is missing is trust in a referee: then every signed answer was checked, up to
 * the silence. */
export function isUnbelieved(error: unknown): boolean {
  return error instanceof RefusedError && error.message === NOT_BELIEVED;
}

/** What is said of a silence then, to a reader who has given so many keys of referees. */
export function unbelievedWords(keys: number): string[] {
  const given =
    keys === 0 ? [] : ["You gave a key, and it is not that of the referee who signed this."];
  return [
    "A referee claims that a party did not answer. Your browser checked every signed answer, and " +
      "stopped where the silence begins: a silence has no signature that could be checked.",
    "So nothing is decided for you, unless you trust that referee. Nobody is shown wrong.",
    ...given,
    "If you trust that referee, drop the file with its public key on this page. Get it from the " +
      "referee, and not from the sender of this evidence.",
  ];
}

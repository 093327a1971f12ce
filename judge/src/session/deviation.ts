/** What convicts a referee by clause 12.5, wherever in the reading of its log it is found. */

import { RefusedError } from "../errors.ts";

export class Deviation extends Error {
  override name = "Deviation";
}

/** The deviation itself: `throw deviates("...")`. */
export function deviates(sentence: string): Deviation {
  return new Deviation(sentence);
}

/** A message of an entry: the referee logs no message that is refused (12.5). */
export function logged<Message>(receive: () => Message): Message {
  try {
    return receive();
  } catch (error) {
    if (error instanceof RefusedError) throw deviates(error.message);
    throw error;
  }
}

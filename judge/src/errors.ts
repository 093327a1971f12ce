/**
 * What a judge can find wrong before it judges: the file is not what it says it is, or a limit of
 * COMMITMENTS 11.1 is passed. No verdict follows from it.
 */
export class RefusedError extends Error {
  override name = "RefusedError";
}

/** The refusal itself: `throw refuse("...")` reads as a sentence. */
export function refuse(sentence: string): RefusedError {
  return new RefusedError(sentence);
}

/** The vectors folder of the repository, as the tests read it. */
import { readFileSync } from "node:fs";

const FOLDER = new URL("../../vectors/", import.meta.url);

export const bytesOfVectors = (path: string): Buffer => readFileSync(new URL(path, FOLDER));

export const jsonOfVectors = (path: string): unknown =>
  JSON.parse(readFileSync(new URL(path, FOLDER), "utf8"));

/** A deterministic stream of 32-bit words (xorshift), so that a failure comes again. */
export function words(seed: number): () => number {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
}

/** The vectors folder of the repository, as the tests read it. */
import { readFileSync } from "node:fs";

const FOLDER = new URL("../../vectors/", import.meta.url);

export const bytesOfVectors = (path: string): Buffer => readFileSync(new URL(path, FOLDER));

/** A file of JSON; its integers of more than 15 digits are bigints, as JSON.parse rounds them. */
export function jsonOfVectors(path: string): unknown {
  const text = readFileSync(new URL(path, FOLDER), "utf8");
  const exact = text.replace(/([[:,]\s*)(-?[0-9]{16,})(?=\s*[,\]}])/g, '$1{"exactly":"$2"}');
  return JSON.parse(exact, (_, value: unknown) =>
    typeof value === "object" && value !== null && "exactly" in value
      ? BigInt(value.exactly as string)
      : value,
  );
}

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

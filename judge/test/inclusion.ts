/** Inclusion proofs of trees whose leaf hashes a test has at hand (COMMITMENTS 2.5). */
import { inclusionProofBy } from "../src/merkle.ts";

export function inclusionProof(hashes: readonly Uint8Array[], index: number): Uint8Array[] {
  return inclusionProofBy((k) => hashes[k] ?? new Uint8Array(), index, hashes.length);
}

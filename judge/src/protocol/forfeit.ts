/** A referee's word about a silence (PROTOCOL 2.10). */
import { equalBytes, fromHex } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { digestOf, integerOf, listOf, stringOf } from "../members.ts";
import { type PublicKey, signedMembers } from "../signatures.ts";
import type { Party } from "./queries.ts";

export const FORFEIT_TYPE = "application/vnd.tallystick.forfeit.v1+json";
const KIND = "tallystick/forfeit/1";

export interface Forfeit {
  readonly party: Party;
  readonly query: Uint8Array;
  readonly referee: PublicKey;
}

/** The game that a forfeit must be about. */
interface ForfeitedGame {
  readonly jobDigest: Uint8Array;
  readonly runRoots: readonly [Uint8Array, Uint8Array];
}

/** The forfeit of an envelope that its referee has signed once; one of another game is refused. */
export function readForfeit(bytes: Uint8Array, game: ForfeitedGame): Forfeit {
  const { members, signer: referee } = signedMembers(
    bytes,
    LIMITS.forfeitBytes,
    { type: FORFEIT_TYPE, kind: KIND, by: "referee" },
    ["job_digest", "run_roots", "party", "query", "referee"],
  );
  if (!equalBytes(digestOf(members("job_digest")), game.jobDigest)) {
    throw refuse("a forfeit of another job");
  }
  const roots = listOf(members("run_roots"), 2, 2).map(digestOf);
  if (!game.runRoots.every((root, party) => equalBytes(root, roots[party] ?? new Uint8Array()))) {
    throw refuse("a forfeit of another game");
  }
  const party = integerOf(members("party"), 0, 1) === 0 ? 0 : 1;
  return { party, query: fromHex(stringOf(members("query"))), referee };
}

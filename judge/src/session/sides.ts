/** The sides of a session, and who plays whom (PROTOCOL 10.4, 10.5). */

import { compareBytes } from "../bytes.ts";
import type { RunCommitment } from "../commitment.ts";

/** A key that has opened its seal, and what it says about its run. */
export interface Member {
  readonly commitment: RunCommitment;
  /** The commitment's bytes. */
  readonly envelope: Uint8Array;
}

/** Signers of one claim, ordered by their raw keys. */
export type Side = readonly [Member, ...Member[]];

/** The order of claims: by run root, then by the other fields in the order of 10.4. */
function compareClaims(a: RunCommitment, b: RunCommitment): number {
  return (
    compareBytes(a.runRoot, b.runRoot) ||
    a.finalStep - b.finalStep ||
    a.checkpoints - b.checkpoints ||
    compareBytes(a.finalStateRoot, b.finalStateRoot)
  );
}

export function compareMembers(a: Member, b: Member): number {
  return compareBytes(a.commitment.signer.raw, b.commitment.signer.raw);
}

/** The sides of members, in their order. */
export function sidesOf(members: readonly Member[]): Side[] {
  const sides: [Member, ...Member[]][] = [];
  const ordered = [...members].sort(
    (a, b) => compareClaims(a.commitment, b.commitment) || compareMembers(a, b),
  );
  for (const member of ordered) {
    const last = sides.at(-1);
    if (last !== undefined && compareClaims(last[0].commitment, member.commitment) === 0) {
      last.push(member);
    } else {
      sides.push([member]);
    }
  }
  return sides;
}

/** The first signer of each side that has one left. */
export function firstSigners(
  sides: readonly Side[],
  isLeft: (member: Member) => boolean,
): Member[] {
  return sides.flatMap((side) => side.find(isLeft) ?? []);
}

/** The games of a round: the first with the second, and so on; the last of an odd number waits. */
export function pairs(signers: readonly Member[]): (readonly [Member, Member])[] {
  return signers.flatMap((one, i) => {
    const other = signers[i + 1];
    return i % 2 === 0 && other !== undefined ? [[one, other] as const] : [];
  });
}

/** Run commitments (COMMITMENTS 9.5) in words: claims, of which nothing is shown yet. */

import { equalBytes, toHex } from "../bytes.ts";
import type { RunCommitment } from "../commitment.ts";
import { introduced, nameOf, type Names } from "./names.ts";
import type { Words } from "./words.ts";

const labelOf = (at: number): string => `Signer ${at + 1}`;

/** PROTOCOL 10.4: all that a commitment says about a run. */
function sameClaim(a: RunCommitment, b: RunCommitment): boolean {
  return (
    equalBytes(a.jobDigest, b.jobDigest) &&
    equalBytes(a.runRoot, b.runRoot) &&
    equalBytes(a.finalStateRoot, b.finalStateRoot) &&
    a.finalStep === b.finalStep &&
    a.checkpoints === b.checkpoints
  );
}

function compared(commitments: readonly RunCommitment[]): { headline: string; meaning: string } {
  const [first, ...others] = commitments;
  if (first === undefined || others.length === 0) {
    return {
      headline: "A signed claim, compared with nothing",
      meaning: "One signature says what its signer claims, and no more.",
    };
  }
  if (others.some((other) => !equalBytes(other.jobDigest, first.jobDigest))) {
    return {
      headline: "These claims are about different jobs",
      meaning: "They cannot be compared with each other.",
    };
  }
  if (others.every((other) => sameClaim(first, other))) {
    return {
      headline: "These signers claim the same result",
      meaning: "They agree. That makes the result more likely, and does not show it to be right.",
    };
  }
  return {
    headline: "These signers claim different results",
    meaning:
      "At least one of the claims is false, or the job lets a trainer choose in rare places. A " +
      "dispute between the signers finds out; its evidence can be judged here.",
  };
}

/** Claims in words; the digest is that of the reader's job, if there is one. */
export function commitmentWords(
  commitments: readonly RunCommitment[],
  jobDigest: string | null,
  names: Names,
): Words {
  const { headline, meaning } = compared(commitments);
  const story = commitments.flatMap((one, i) => {
    const name = nameOf(labelOf(i), one.signer.id, names);
    const steps = one.finalStep.toLocaleString("en");
    const claim = `${name} has signed: my run of this job took ${steps} steps, and ended with this model.`;
    if (jobDigest === null || jobDigest === toHex(one.jobDigest)) return [claim];
    return [claim, `${name}'s claim is about another job than the one that you gave.`];
  });
  return {
    tone: "claim",
    headline,
    parties: commitments.map((one, i) => introduced(labelOf(i), one.signer.id, names)),
    story,
    figures: [],
    meaning: [meaning],
    proves: ["Each signature is genuine: whoever holds the key has signed this claim."],
    provesNot: [
      "That any work was done, or that the result is right.",
      "Which person holds a key. A key signs; whose it is, you must know from elsewhere.",
    ],
    details: commitments.flatMap((one, i): [string, string][] => [
      [`Key id of signer ${i + 1}`, one.signer.id],
      [`Job digest`, toHex(one.jobDigest)],
      [`Run root`, toHex(one.runRoot)],
      [`Final state root`, toHex(one.finalStateRoot)],
      [`Checkpoints`, String(one.checkpoints)],
    ]),
  };
}

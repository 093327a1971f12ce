/** Run commitments: what a party signs about its run (COMMITMENTS 9.5). */

import { toHex } from "./bytes.ts";
import { writeJson, type Json } from "./json.ts";
import { LIMITS } from "./limits.ts";
import { digestOf, integerOf } from "./members.ts";
import { type PublicKey, signedMembers } from "./signatures.ts";

export const RUN_COMMITMENT_TYPE = "application/vnd.tallystick.run-commitment.v1+json";
const KIND = "tallystick/run-commitment/1";

export interface RunCommitment {
  readonly jobDigest: Uint8Array;
  readonly runRoot: Uint8Array;
  readonly finalStep: number;
  readonly finalStateRoot: Uint8Array;
  readonly checkpoints: number;
  readonly signer: PublicKey;
}

/** The payload that is signed (9.5). */
export function commitmentPayload(commitment: RunCommitment): Uint8Array {
  return writeJson(
    new Map<string, Json>([
      ["kind", KIND],
      ["job_digest", toHex(commitment.jobDigest)],
      ["run_root", toHex(commitment.runRoot)],
      ["final_step", commitment.finalStep],
      ["final_state_root", toHex(commitment.finalStateRoot)],
      ["checkpoints", commitment.checkpoints],
      ["signer", toHex(commitment.signer.raw)],
    ]),
  );
}

/** The run commitment of an envelope that its signer has signed, once (9.4, 9.5). Whether its
 * numbers are a run's of the job is another question, whose answer convicts (PROTOCOL 3.2). */
export function readRunCommitment(bytes: Uint8Array): RunCommitment {
  const { members, signer } = signedMembers(
    bytes,
    LIMITS.commitmentBytes,
    { type: RUN_COMMITMENT_TYPE, kind: KIND, by: "signer" },
    ["job_digest", "run_root", "final_step", "final_state_root", "checkpoints", "signer"],
  );
  return {
    jobDigest: digestOf(members("job_digest")),
    runRoot: digestOf(members("run_root")),
    finalStep: integerOf(members("final_step"), 0, LIMITS.steps),
    finalStateRoot: digestOf(members("final_state_root")),
    checkpoints: integerOf(members("checkpoints"), 0, LIMITS.checkpoints),
    signer,
  };
}

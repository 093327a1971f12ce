import { ed25519 } from "@noble/curves/ed25519.js";
import { describe, expect, test } from "vitest";

import { fromHex, fromUtf8, toBase64, toHex, toUtf8 } from "../../src/bytes.ts";
import { commitmentPayload, readRunCommitment, RUN_COMMITMENT_TYPE } from "../../src/commitment.ts";
import { RefusedError } from "../../src/errors.ts";
import { sha256 } from "../../src/sha256.ts";
import { preAuthentication, PublicKey, readEnvelope, writeEnvelope } from "../../src/signatures.ts";
import { vectors } from "./golden.ts";

interface Case {
  name: string;
  public_key: string;
  message: string;
  signature: string;
  accepted: boolean;
}

test("vectors/commit/ed25519.json (COMMITMENTS 9.1.1, 9.1.2)", () => {
  const { cases } = vectors<{ cases: Case[] }>("commit/ed25519.json");
  const accepts = (c: Case): boolean => {
    try {
      return new PublicKey(fromHex(c.public_key)).verifies(
        fromHex(c.signature),
        fromHex(c.message),
      );
    } catch (error) {
      if (error instanceof RefusedError) return false;
      throw error;
    }
  };
  const wrong = cases.filter((c) => accepts(c) !== c.accepted).map(({ name }) => name);
  expect(wrong).toEqual([]);
  expect(cases).toHaveLength(217);
});

interface SignatureFile {
  private_seed: string;
  public_key: string;
  key_id: string;
  members: {
    job_digest: string;
    run_root: string;
    final_step: number;
    checkpoints: number;
    final_state_root: string;
  };
  pae_sha256: string;
  envelope: string;
}

describe("vectors/commit/signature.json (COMMITMENTS 9)", () => {
  const file = vectors<SignatureFile>("commit/signature.json");
  const signer = new PublicKey(fromHex(file.public_key));
  const { members } = file;
  const commitment = {
    jobDigest: fromHex(members.job_digest),
    runRoot: fromHex(members.run_root),
    finalStep: members.final_step,
    finalStateRoot: fromHex(members.final_state_root),
    checkpoints: members.checkpoints,
    signer,
  };
  const payload = commitmentPayload(commitment);

  /** An envelope with these members altered, signed by the file's key. */
  function signed(altered: Record<string, unknown>, type = RUN_COMMITMENT_TYPE): Uint8Array {
    const own = JSON.parse(fromUtf8(payload)) as Record<string, unknown>;
    const all = Object.entries({ ...own, ...altered }).sort(([a], [b]) => (a < b ? -1 : 1));
    const bytes = toUtf8(JSON.stringify(Object.fromEntries(all)));
    const signature = ed25519.sign(preAuthentication(type, bytes), fromHex(file.private_seed));
    const signatures = [{ keyId: signer.id, signature }];
    return writeEnvelope({ payloadType: type, payload: bytes, signatures });
  }

  test("the run commitment, its key and its envelope", () => {
    expect(signer.id).toBe(file.key_id);
    expect(toHex(sha256(preAuthentication(RUN_COMMITMENT_TYPE, payload)))).toBe(file.pae_sha256);
    const envelope = readEnvelope(toUtf8(file.envelope));
    expect(fromUtf8(writeEnvelope(envelope))).toBe(file.envelope);
    expect(envelope.payload).toEqual(payload);
    expect(fromUtf8(signed({}))).toBe(file.envelope);
    expect(commitmentPayload(readRunCommitment(toUtf8(file.envelope)))).toEqual(payload);
  });

  test("refused commitments, each one signed", () => {
    for (const altered of [
      { kind: "tallystick/run-commitment/2" },
      { more: 1 },
      { final_step: "97" },
      { final_step: -1 },
      { final_step: 2 ** 40 + 1 },
      { checkpoints: 4000001 },
      { checkpoints: true },
      { run_root: members.run_root.toUpperCase() },
      { run_root: members.run_root.slice(2) },
      { signer: "00".repeat(32) },
      { signer: toHex(ed25519.getPublicKey(new Uint8Array(32))) },
    ]) {
      expect(() => readRunCommitment(signed(altered)), JSON.stringify(altered)).toThrow(
        RefusedError,
      );
    }
    expect(() => readRunCommitment(signed({}, "application/json"))).toThrow(RefusedError);
  });

  test("refused envelopes", () => {
    const envelope = readEnvelope(toUtf8(file.envelope));
    const [one] = envelope.signatures;
    if (one === undefined) throw new Error("the vector has no signature");
    const flipped = Uint8Array.from(one.signature, (byte, i) => (i === 40 ? byte ^ 1 : byte));
    for (const signatures of [
      [],
      [one, one],
      [{ ...one, keyId: "00".repeat(32) }],
      [{ ...one, signature: flipped }],
      [{ ...one, signature: one.signature.subarray(1) }],
    ]) {
      const bytes = writeEnvelope({ ...envelope, signatures });
      expect(() => readRunCommitment(bytes)).toThrow(RefusedError);
    }
    const many = Array.from({ length: 65 }, () => one);
    expect(() => readEnvelope(writeEnvelope({ ...envelope, signatures: many }))).toThrow(
      RefusedError,
    );
    const inner = toBase64(payload);
    for (const text of [
      file.envelope.replace('"payload":', '"payload" :'),
      file.envelope.replace(inner, `${inner}=`),
      file.envelope.replace('"sig":', '"sih":'),
      file.envelope.replace('"payloadType"', '"payloadTypf"'),
      "[]",
    ]) {
      expect(() => readEnvelope(toUtf8(text))).toThrow(RefusedError);
    }
    expect(() => readEnvelope(toUtf8(file.envelope), file.envelope.length - 1)).toThrow(
      RefusedError,
    );
  });
});

/** Writes logs as a referee would, and as one would not. */

import { compareBytes } from "../../src/bytes.ts";
import { commitmentPayload, RUN_COMMITMENT_TYPE } from "../../src/commitment.ts";
import { writeEnvelope } from "../../src/signatures.ts";
import { entryDigest, type Said, writeEntry } from "../../src/session/entries.ts";
import type { Rules } from "../../src/session/rules.ts";
import { sealedBy, writeOpening, writeSeal } from "../../src/session/seal.ts";
import { ENTRY_TYPE, OPENING_TYPE, SEAL_TYPE } from "../../src/session/signed.ts";
import { Signer, TERMS } from "./golden.ts";

export function hash(byte: number): Uint8Array {
  return new Uint8Array(32).fill(byte);
}

export const REFEREE = new Signer(hash(3));

/** Three parties, in the order of their keys. */
export const [ANN, BEN, CAT] = threeParties();

function threeParties(): [Signer, Signer, Signer] {
  const [a, b, c] = [hash(21), hash(22), hash(23)]
    .map((seed) => new Signer(seed))
    .sort((one, other) => compareBytes(one.key.raw, other.key.raw));
  if (a === undefined || b === undefined || c === undefined) throw new Error("three parties");
  return [a, b, c];
}

export const RULES: Rules = {
  jobDigest: TERMS.jobDigest,
  nonce: hash(1),
  referee: REFEREE.key,
  arity: 20,
  mostParties: 2,
  sealing: 1000n,
  opening: 1000n,
  budget: 500n,
  step: 2n,
  steps: 10n,
  extension: 50n,
  keys: [],
  offer: hash(0),
};

/** The envelope of a run commitment; `claim` is the byte of its run root. */
export function envelopeOf(signer: Signer, claim: number, job = RULES.jobDigest): Uint8Array {
  const payload = commitmentPayload({
    jobDigest: job,
    runRoot: hash(claim),
    finalStep: 4,
    finalStateRoot: hash(claim + 1),
    checkpoints: 3,
    signer: signer.key,
  });
  const signature = {
    keyId: signer.key.id,
    signature: signer.signature(RUN_COMMITMENT_TYPE, payload),
  };
  return writeEnvelope({ payloadType: RUN_COMMITMENT_TYPE, payload, signatures: [signature] });
}

export class Log {
  readonly entries: Uint8Array[] = [];
  #previous: Uint8Array = hash(0);
  /** The digest of entry 0. */
  readonly session: Uint8Array;

  constructor(
    readonly rules: Rules = RULES,
    time = 0,
  ) {
    this.say({ kind: "session", rules }, time);
    this.session = this.#previous;
  }

  /** Appends an entry, whatever it says. */
  say(said: Said, time: number): this {
    const entry = { index: this.entries.length, previous: this.#previous, time: BigInt(time) };
    return this.sign(writeEntry({ ...entry, said }));
  }

  /** Appends bytes that the referee signs as an entry. */
  sign(data: Uint8Array): this {
    this.entries.push(REFEREE.signed(ENTRY_TYPE, data));
    this.#previous = entryDigest(data);
    return this;
  }

  get last(): Uint8Array {
    return this.#previous;
  }

  seal(
    signer: Signer,
    time: number,
    claim = 7,
    nonce = hash(5),
    session = this.session,
    commitment = envelopeOf(signer, claim),
  ): this {
    const key = signer.key.raw;
    const opening = { session, key, nonce, commitment };
    const sealed = sealedBy(opening, this.rules.jobDigest);
    const data = writeSeal({ session, key, sealed });
    return this.say({ kind: "seal", message: signer.signed(SEAL_TYPE, data) }, time);
  }

  open(
    signer: Signer,
    time: number,
    claim = 7,
    commitment = envelopeOf(signer, claim),
    session = this.session,
  ): this {
    const data = writeOpening({
      session,
      key: signer.key.raw,
      nonce: hash(5),
      commitment,
    });
    return this.say({ kind: "opening", message: signer.signed(OPENING_TYPE, data) }, time);
  }
}

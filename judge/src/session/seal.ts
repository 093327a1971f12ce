/** Seals and openings: a provider's commitment, hidden and then shown (PROTOCOL 10.2, 10.3). */

import { LIMITS } from "../limits.ts";
import { readSigned, requireSigned } from "../protocol/signed.ts";
import { Reader } from "../reader.ts";
import { PublicKey } from "../signatures.ts";
import { Writer } from "../writer.ts";
import { OPENING_TYPE, SEAL_TYPE } from "./signed.ts";

/** What a provider seals its commitment with (10.2). */
export interface Seal {
  readonly session: Uint8Array;
  /** The raw public key that signs the seal, and that signed the run commitment. */
  readonly key: Uint8Array;
  readonly sealed: Uint8Array;
}

export interface Opening {
  readonly session: Uint8Array;
  readonly key: Uint8Array;
  readonly nonce: Uint8Array;
  /** The run commitment's envelope. */
  readonly commitment: Uint8Array;
}

export function readSeal(data: Uint8Array): Seal {
  const reader = new Reader(data);
  reader.tag("seal/1");
  const seal = { session: reader.hash(), key: reader.hash(), sealed: reader.hash() };
  reader.end();
  return seal;
}

export function writeSeal({ session, key, sealed }: Seal): Uint8Array {
  return Writer.tagged("seal/1").hash(session).hash(key).hash(sealed).bytes();
}

export function readOpening(data: Uint8Array): Opening {
  const reader = new Reader(data);
  reader.tag("opening/1");
  const opening = {
    session: reader.hash(),
    key: reader.hash(),
    nonce: reader.hash(),
    commitment: reader.blob(LIMITS.commitmentBytes, "a run commitment's bytes"),
  };
  reader.end();
  return opening;
}

export function writeOpening({ session, key, nonce, commitment }: Opening): Uint8Array {
  const head = Writer.tagged("opening/1").hash(session).hash(key).hash(nonce);
  return head.blob(commitment).bytes();
}

/** The hash that a seal must have had for this opening (10.2). */
export function sealedBy(opening: Opening, jobDigest: Uint8Array): Uint8Array {
  return Writer.tagged("sealed/1")
    .hash(jobDigest)
    .hash(opening.session)
    .hash(opening.key)
    .hash(opening.nonce)
    .blob(opening.commitment)
    .digest();
}

/** A message with the key that it names and that signed it, and the words that were signed. */
export interface Received<Message> {
  readonly message: Message;
  readonly signer: PublicKey;
  readonly words: Uint8Array;
}

function received<Message extends { readonly key: Uint8Array }>(
  bytes: Uint8Array,
  limit: number,
  type: string,
  read: (data: Uint8Array) => Message,
): Received<Message> {
  const signed = readSigned(bytes, limit);
  const message = read(signed.data);
  const signer = new PublicKey(message.key);
  requireSigned(signed, type, signer);
  return { message, signer, words: signed.data };
}

/** A seal that is signed by the key that it names; anything else is refused (10.2). */
export function receiveSeal(bytes: Uint8Array): Received<Seal> {
  return received(bytes, LIMITS.sealBytes, SEAL_TYPE, readSeal);
}

/** An opening that is signed by the key that it names; anything else is refused (10.3). */
export function receiveOpening(bytes: Uint8Array): Received<Opening> {
  return received(bytes, LIMITS.sealedBytes, OPENING_TYPE, readOpening);
}

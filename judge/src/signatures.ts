/** Ed25519 by the equation without the cofactor, and DSSE envelopes (COMMITMENTS 9). */

import { ed25519 } from "@noble/curves/ed25519.js";
import { sha512 } from "@noble/hashes/sha2.js";

import { concatBytes, equalBytes, fromBase64, toBase64, toHex, toUtf8 } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { readJson, writeJson, type Json } from "./json.ts";
import { LIMITS } from "./limits.ts";
import { digestOf, exactly, listOf, stringOf } from "./members.ts";
import { sha256 } from "./sha256.ts";

const { Point } = ed25519;
type Point = InstanceType<typeof Point>;
const ORDER = Point.Fn.ORDER;

/** An integer from bytes, the least significant one first. */
function integerOf(bytes: Uint8Array): bigint {
  return BigInt(`0x${toHex(Uint8Array.from(bytes).reverse())}`);
}

/** The point of its canonical encoding (RFC 8032 5.1.2), in the subgroup of prime order and not
 * neutral; nothing else has one here (9.1.1). */
function pointOf(bytes: Uint8Array): Point | undefined {
  if (bytes.length !== 32) return undefined;
  let point: Point;
  try {
    point = Point.fromBytes(bytes);
  } catch {
    return undefined;
  }
  return !point.is0() && point.isTorsionFree() ? point : undefined;
}

/** A public key of 9.1.1. */
export class PublicKey {
  readonly #point: Point;

  constructor(readonly raw: Uint8Array) {
    const point = pointOf(raw);
    if (point === undefined) throw refuse("a public key that COMMITMENTS 9.1.1 refuses");
    this.#point = point;
  }

  /** The key id: the hexadecimal digest of the key (9.1). */
  get id(): string {
    return toHex(sha256(this.raw));
  }

  /**
   * Whether a signature of a message is valid: S < L, and [S]B = R + [k]A for a point R of the
   * subgroup that is not neutral, canonically encoded (9.1.2). B and A are in the subgroup, so
   * [S]B − [k]A is too: R is compared as the bytes of that point, and never decoded.
   */
  verifies(signature: Uint8Array, message: Uint8Array): boolean {
    if (signature.length !== 64) return false;
    const encoded = signature.subarray(0, 32);
    const s = integerOf(signature.subarray(32));
    if (s >= ORDER) return false;
    const k =
      integerOf(sha512.create().update(encoded).update(this.raw).update(message).digest()) % ORDER;
    const r = Point.BASE.multiplyUnsafe(s).subtract(this.#point.multiplyUnsafe(k));
    return !r.is0() && equalBytes(r.toBytes(), encoded);
  }
}

/** DSSE's pre-authentication encoding: the bytes that are signed (9.2). */
export function preAuthentication(type: string, payload: Uint8Array): Uint8Array {
  const name = toUtf8(type);
  const head = toUtf8(`DSSEv1 ${name.length} ${type} ${payload.length} `);
  return concatBytes(head, payload);
}

/** An envelope (9.3). */
export interface Envelope {
  readonly payloadType: string;
  readonly payload: Uint8Array;
  readonly signatures: readonly { readonly keyId: string; readonly signature: Uint8Array }[];
}

/** Reads an envelope (9.3) of at most `limit` bytes. */
export function readEnvelope(bytes: Uint8Array, limit: number = LIMITS.envelopeBytes): Envelope {
  const members = exactly(readJson(bytes, limit), ["payload", "payloadType", "signatures"]);
  const signatures = listOf(members("signatures"), 0, LIMITS.signatures).map((item) => {
    const one = exactly(item, ["keyid", "sig"]);
    return { keyId: stringOf(one("keyid")), signature: fromBase64(stringOf(one("sig"))) };
  });
  const payload = fromBase64(stringOf(members("payload")));
  return { payloadType: stringOf(members("payloadType")), payload, signatures };
}

/** The bytes of an envelope (9.3). */
export function writeEnvelope(envelope: Envelope): Uint8Array {
  const signatures = envelope.signatures.map(
    ({ keyId, signature }): Json =>
      new Map([
        ["keyid", keyId],
        ["sig", toBase64(signature)],
      ]),
  );
  return writeJson(
    new Map<string, Json>([
      ["payload", toBase64(envelope.payload)],
      ["payloadType", envelope.payloadType],
      ["signatures", signatures],
    ]),
  );
}

/** Refuses an envelope that is not of the expected type and signed once, by this key (9.4, 9.5). */
export function requireSigner(envelope: Envelope, type: string, key: PublicKey): void {
  const [one, ...others] = envelope.signatures;
  if (envelope.payloadType !== type) throw refuse("an envelope of another payload type");
  if (one === undefined || others.length > 0) throw refuse("an envelope that is not signed once");
  const signed = preAuthentication(type, envelope.payload);
  if (one.keyId !== key.id || !key.verifies(one.signature, signed)) {
    throw refuse("an envelope whose signature does not verify");
  }
}

/** What a signed JSON object is: its payload type, its member `kind`, the member with its signer. */
export interface SignedKind<Name extends string> {
  readonly type: string;
  readonly kind: string;
  readonly by: Name;
}

/** The members of a JSON object that the key in one of them has signed, once (9.4, 9.5). */
export function signedMembers<Name extends string>(
  bytes: Uint8Array,
  limit: number,
  { type, kind, by }: SignedKind<Name>,
  names: readonly Name[],
): { readonly members: (name: Name) => Json; readonly signer: PublicKey } {
  const envelope = readEnvelope(bytes, limit);
  const members = exactly(readJson(envelope.payload, limit), ["kind", ...names]);
  if (stringOf(members("kind")) !== kind) throw refuse(`no ${kind}`);
  const signer = new PublicKey(digestOf(members(by)));
  requireSigner(envelope, type, signer);
  return { members, signer };
}

/** Whether a signature of 64 bytes is a key's over a payload of a type (9.2). */
export function isSignedBy(
  key: PublicKey,
  type: string,
  payload: Uint8Array,
  signature: Uint8Array,
): boolean {
  return key.verifies(signature, preAuthentication(type, payload));
}

/** Whether two keys are one. */
export function sameKey(a: PublicKey, b: PublicKey): boolean {
  return equalBytes(a.raw, b.raw);
}

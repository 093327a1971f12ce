/** Public keys as `tallystick keys show` writes them: SubjectPublicKeyInfo in PEM (RFC 8410). */

import { equalBytes, fromBase64, fromHex, fromUtf8 } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { PublicKey } from "../signatures.ts";

/** The bytes before the 32 of an Ed25519 key. */
const HEAD = fromHex("302a300506032b6570032100");
const LINES = /^-----BEGIN PUBLIC KEY-----\n([A-Za-z0-9+/=]{60})\n-----END PUBLIC KEY-----\n?$/;

/** The most bytes that such a file has, with line ends of two bytes. */
export const PEM_BYTES = 256;

/** The key of a PEM file (COMMITMENTS 9.1.1 says which keys are none). */
export function readPublicKey(bytes: Uint8Array): PublicKey {
  if (bytes.length > PEM_BYTES) throw refuse("This is no public key: it is too long.");
  const body = LINES.exec(fromUtf8(bytes).replaceAll("\r\n", "\n"))?.[1];
  if (body === undefined) throw refuse("This is no public key of Ed25519 in PEM.");
  const info = fromBase64(body);
  if (info.length !== 44 || !equalBytes(info.subarray(0, 12), HEAD)) {
    throw refuse("This is a public key of another kind than Ed25519.");
  }
  return new PublicKey(info.subarray(12));
}

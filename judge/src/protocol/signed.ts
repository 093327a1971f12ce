/** The signed form of a message: blob data ‖ 64 bytes of signature (PROTOCOL 2.5, 13.1). */
import { refuse } from "../errors.ts";
import { Reader } from "../reader.ts";
import { isSignedBy, type PublicKey } from "../signatures.ts";
import { Writer } from "../writer.ts";

export const SIGNATURE_BYTES = 64;

export interface Signed {
  readonly data: Uint8Array;
  readonly signature: Uint8Array;
}

/** A signed form of at most `limit` bytes; whose signature it is, is another question. */
export function readSigned(bytes: Uint8Array, limit: number): Signed {
  if (bytes.length > limit) throw refuse(`a signed message of ${bytes.length} bytes`);
  const reader = new Reader(bytes);
  const data = reader.blob(limit, "the bytes of a signed message");
  const signature = reader.take(SIGNATURE_BYTES);
  reader.end();
  return { data, signature };
}

export function writeSigned({ data, signature }: Signed): Uint8Array {
  if (signature.length !== SIGNATURE_BYTES) throw refuse("a signature has 64 bytes");
  return new Writer().blob(data).raw(signature).bytes();
}

/** Refuses a message that is not signed by this key as this type. */
export function requireSigned({ data, signature }: Signed, type: string, key: PublicKey): void {
  if (!isSignedBy(key, type, data, signature)) throw refuse("a signature that does not verify");
}

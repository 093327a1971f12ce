/** What a session's messages are signed as (PROTOCOL 13.1), and where a log is cut off (12.3.1). */

import { SIGNATURE_BYTES } from "../protocol/signed.ts";
import { Reader } from "../reader.ts";

export const SEAL_TYPE = "application/vnd.tallystick.seal.v1";
export const OPENING_TYPE = "application/vnd.tallystick.opening.v1";
export const ENTRY_TYPE = "application/vnd.tallystick.log-entry.v1";
export const TURN_TYPE = "application/vnd.tallystick.turn.v1";

const LENGTH_BYTES = 8;

/** Whether bytes are the beginning of a longer signed form of at most `limit` bytes (12.3.1). */
export function isCutOff(bytes: Uint8Array, limit: number): boolean {
  if (bytes.length < LENGTH_BYTES) return true;
  const whole = new Reader(bytes).u64() + BigInt(LENGTH_BYTES + SIGNATURE_BYTES);
  return whole <= BigInt(limit) && BigInt(bytes.length) < whole;
}

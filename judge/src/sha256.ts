/** H of COMMITMENTS 1.1, and the domain tags of 1.3. */

import { sha256 as noble } from "@noble/hashes/sha2.js";

import { toUtf8 } from "./bytes.ts";

/** SHA-256 of byte strings, one after the other (COMMITMENTS 1.1). */
export function sha256(...parts: readonly Uint8Array[]): Uint8Array {
  const hash = noble.create();
  for (const part of parts) hash.update(part);
  return hash.digest();
}

/** TAG(name): `tallystick/`, the name, one zero byte (COMMITMENTS 1.3). */
export function tag(name: string): Uint8Array {
  return toUtf8(`tallystick/${name}\0`);
}

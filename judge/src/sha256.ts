/** H of COMMITMENTS 1.1, and the domain tags of 1.3. */

import { sha256 as noble } from "@noble/hashes/sha2.js";

import { toUtf8 } from "./bytes.ts";

/** SHA-256 of byte strings, one after the other (COMMITMENTS 1.1). */
export const sha256 = (...parts: readonly Uint8Array[]): Uint8Array => sha256All(parts);

const FRESH = noble.create();
/** Set back for each use: to make one anew takes half as long as to hash a leaf. */
const hash = noble.create();

/** Short parts are put together here: to hash a part of a few bytes costs more than to copy it. */
const short = new Uint8Array(256);

/** The same of a list, which may have more items than a call takes arguments. */
export function sha256All(parts: readonly Uint8Array[]): Uint8Array {
  FRESH._cloneInto(hash);
  let held = 0;
  for (const part of parts) {
    if (held + part.length > short.length) {
      hash.update(short.subarray(0, held));
      held = 0;
    }
    if (part.length > short.length) hash.update(part);
    else {
      short.set(part, held);
      held += part.length;
    }
  }
  return hash.update(short.subarray(0, held)).digest();
}

const TAGS = new Map<string, Uint8Array>();

/** TAG(name): `tallystick/`, the name, one zero byte (COMMITMENTS 1.3). */
export function tag(name: string): Uint8Array {
  let bytes = TAGS.get(name);
  if (bytes === undefined) TAGS.set(name, (bytes = toUtf8(`tallystick/${name}\0`)));
  return bytes;
}

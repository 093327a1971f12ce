/** Names of keys: those that the reader types, and those that a page's maker gives. */

import { fromHex, toHex } from "../bytes.ts";
import { sha256 } from "../sha256.ts";

/** Key id (COMMITMENTS 9.1) to name. */
export interface Names {
  readonly byReader: ReadonlyMap<string, string>;
  readonly byMaker: ReadonlyMap<string, string>;
}

export const NO_NAMES: Names = { byReader: new Map(), byMaker: new Map() };

/** What draws nothing, or moves other text (docs/INTERFACE.md, "Exit codes"). */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;

/** A text of another party as it may be shown: what a reader could not see is written out. */
export function visible(text: string): string {
  return text.replace(INVISIBLE, (character) => {
    const code = (character.codePointAt(0) ?? 0).toString(16);
    if (code.length <= 2) return `\\x${code.padStart(2, "0")}`;
    return code.length <= 4 ? `\\u${code.padStart(4, "0")}` : `\\U${code.padStart(8, "0")}`;
  });
}

/** The key id of a public key in hexadecimal (COMMITMENTS 9.1). */
export function keyId(key: string): string {
  return toHex(sha256(fromHex(key)));
}

/** A page's names, which are of public keys, by key ids. */
export function byKeyId(names: ReadonlyMap<string, string>): Map<string, string> {
  return new Map([...names].map(([key, name]) => [keyId(key), name]));
}

/** A key's holder as a sentence names it: by the reader's name, or else by a label. */
export function nameOf(label: string, keyId: string, names: Names): string {
  const own = names.byReader.get(keyId)?.trim() ?? "";
  return own === "" ? label : visible(own);
}

/** So many digits of a key id are shown where people compare them. */
export const KEY_DIGITS = 16;

/** A key's holder in full, once: whose name it is, and the key. */
export function introduced(label: string, keyId: string, names: Names): string {
  const name = nameOf(label, keyId, names);
  const given = names.byMaker.get(keyId);
  const maker =
    given === undefined ? "" : ` The maker of this page calls it “${visible(given)}”, unchecked.`;
  const own = name === label ? "" : ` (${label}, by your name for it)`;
  return `${name}${own}: the holder of the key whose id begins with ${keyId.slice(0, KEY_DIGITS)}.${maker}`;
}

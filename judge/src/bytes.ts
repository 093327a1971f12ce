/** Bytes and their written forms: hexadecimal, UTF-8 and base64, each read strictly. */

import { refuse } from "./errors.ts";

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const ENCODER = new TextEncoder();
/** Texts of at most this many characters count as short. */
const SHORT = 64;
const DIGITS = "0123456789abcdef";
/** The characters of base64 as their codes, the value of each code, and the code of padding. */
const BASE64 = ENCODER.encode("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/");
const VALUES = Uint8Array.from({ length: 128 }, (_, code) => Math.max(0, BASE64.indexOf(code)));
const PADDING = 0x3d;

/** Lower-case hexadecimal digits of bytes (COMMITMENTS 1.1). */
export function toHex(bytes: Uint8Array): string {
  let out = "";
  for (const byte of bytes) out += DIGITS.charAt(byte >> 4) + DIGITS.charAt(byte & 15);
  return out;
}

/** The bytes of lower-case hexadecimal digits; upper-case ones are refused (COMMITMENTS 1.1). */
export function fromHex(text: string): Uint8Array {
  if (text.length % 2 !== 0 || !/^[0-9a-f]*$/.test(text)) throw refuse("no hexadecimal digits");
  const out = new Uint8Array(text.length / 2);
  for (let i = 0; i < out.length; i++) out[i] = parseInt(text.slice(2 * i, 2 * i + 2), 16);
  return out;
}

/** A digest in JSON: 64 lower-case hexadecimal digits (COMMITMENTS 1.1). */
export function digestFromHex(text: string): Uint8Array {
  if (text.length !== 64) throw refuse("a digest has 64 hexadecimal digits");
  return fromHex(text);
}

/** Whether two byte strings are the same. */
export function equalBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && compareBytes(a, b) === 0;
}

/** The first position at which a list of digests differs from another of its length; −1 if none. */
export function firstDiffering(a: readonly Uint8Array[], b: readonly Uint8Array[]): number {
  return a.findIndex((digest, k) => !equalBytes(digest, b[k] ?? new Uint8Array()));
}

/** Unsigned bytewise order, a prefix before its extensions: negative, zero or positive. */
export function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) {
    const difference = (a[i] ?? 0) - (b[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

/** One byte string after the other. */
export const concatBytes = (...parts: readonly Uint8Array[]): Uint8Array => concatAll(parts);

/** The same of a list, which may have more items than a call takes arguments. */
export function concatAll(parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** A short text of ASCII as bytes, if it is one: the encoder takes ten times as long for a name. */
function shortAscii(text: string): Uint8Array | undefined {
  if (text.length > SHORT) return undefined;
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < bytes.length; k++) {
    const unit = text.charCodeAt(k);
    if (unit > 0x7f) return undefined;
    bytes[k] = unit;
  }
  return bytes;
}

/** UTF-8 of a string; a lone surrogate has none and is refused (COMMITMENTS 1.2). */
export function toUtf8(text: string): Uint8Array {
  const ascii = shortAscii(text);
  if (ascii !== undefined) return ascii;
  if (/\p{Surrogate}/u.test(text)) throw refuse("a lone surrogate has no UTF-8");
  return ENCODER.encode(text);
}

/** The string of UTF-8 bytes. Surrogates, overlong forms and cut-off characters are refused. */
export function fromUtf8(bytes: Uint8Array): string {
  try {
    return UTF8.decode(bytes);
  } catch {
    throw refuse("the bytes are no UTF-8");
  }
}

/** The order of names (COMMITMENTS 1.4): by UTF-8 bytes, which is the order of code points. */
export function compareNames(a: string, b: string): number {
  return compareBytes(ENCODER.encode(a), ENCODER.encode(b));
}

/** Standard base64 with padding (COMMITMENTS 9.3). */
export function toBase64(bytes: Uint8Array): string {
  const out = new Uint8Array(Math.ceil(bytes.length / 3) * 4).fill(PADDING);
  for (let i = 0, at = 0; i < bytes.length; i += 3, at += 4) {
    const [a, b, c] = [bytes[i] ?? 0, bytes[i + 1] ?? 0, bytes[i + 2] ?? 0];
    const word = (a << 16) | (b << 8) | c;
    const present = Math.min(3, bytes.length - i) + 1;
    for (let digit = 0; digit < present; digit++) {
      out[at + digit] = BASE64[(word >> (18 - 6 * digit)) & 63] ?? 0;
    }
  }
  return UTF8.decode(out);
}

/** The bytes of base64. Other characters, missing padding and unused bits that are not zero are
 * refused (COMMITMENTS 9.3). */
export function fromBase64(text: string): Uint8Array {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) throw refuse("no base64");
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const out = new Uint8Array((text.length / 4) * 3 - padding);
  for (let i = 0, at = 0; i < text.length; i += 4) {
    let word = 0;
    for (let digit = 0; digit < 4; digit++) {
      word = (word << 6) | (VALUES[text.charCodeAt(i + digit)] ?? 0);
    }
    for (let shift = 16; shift >= 0 && at < out.length; shift -= 8)
      out[at++] = (word >> shift) & 255;
    // The last character's bits that belong to no byte.
    const unused = i + 4 === text.length && padding > 0 ? word & ((1 << (8 * padding)) - 1) : 0;
    if (unused !== 0) throw refuse("base64 whose unused bits are not zero");
  }
  return out;
}

/**
 * Canonical JSON (COMMITMENTS 1.8 to 1.11): RFC 8785 of null, booleans, strings, integers, arrays
 * and objects. The reader is one of its own, because JSON.parse drops duplicate members and rounds
 * integers. It accepts exactly the bytes that the writer writes.
 */

import { fromUtf8, toUtf8 } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { LIMITS } from "./limits.ts";

/** An object is a Map, so no member's name (`__proto__`) is a special one. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export type JsonObject = Map<string, Json>;

const SHORT = new Map([
  ['"', '\\"'],
  ["\\", "\\\\"],
  ["\b", "\\b"],
  ["\t", "\\t"],
  ["\n", "\\n"],
  ["\f", "\\f"],
  ["\r", "\\r"],
]);
// eslint-disable-next-line no-control-regex
const ESCAPED = /["\\\u0000-\u001f]/g;
const INTEGER = /(?:0|-?[1-9][0-9]*)/y;
// eslint-disable-next-line no-control-regex
const PLAIN = /[^"\\\u0000-\u001f]*/y;
/** Characters of a string that are put together at once: strings of single ones would take memory. */
const CHUNK = 4096;

/** The code units of short escapes, by the letter's, and of the digits of the others. */
const BY_LETTER = new Map(
  [...SHORT].map(([character, form]) => [form.charCodeAt(1), character.charCodeAt(0)]),
);
const HAS_SHORT = new Set(BY_LETTER.values());
const DIGITS = new Map(Array.from("0123456789abcdef", (digit, k) => [digit.charCodeAt(0), k]));

const escaped = (c: string): string =>
  SHORT.get(c) ?? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;

const written = (text: string): string => `"${text.replace(ESCAPED, escaped)}"`;

/** Bytes `,`, `[` and `{`, those in strings too: what 11.1 counts as json_values. */
function countValues(bytes: Uint8Array): number {
  let found = 0;
  for (const byte of bytes) if (byte === 0x2c || byte === 0x5b || byte === 0x7b) found++;
  return found;
}

const BACKSLASH = 0x5c;
/** Those before it are always escaped. */
const FIRST_PLAIN = 0x20;

class JsonReader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  #skip(token: string): boolean {
    const found = this.#text.startsWith(token, this.#at);
    if (found) this.#at += token.length;
    return found;
  }

  #expect(token: string): void {
    if (!this.#skip(token)) throw refuse(`JSON without ${token} at ${this.#at}`);
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found !== null) this.#at += found[0].length;
    return found;
  }

  value(depth: number): Json {
    if (this.#skip("null")) return null;
    if (this.#skip("true")) return true;
    if (this.#skip("false")) return false;
    const next = this.#text.charAt(this.#at);
    if (next === '"') return this.#string();
    if (next === "[" || next === "{") {
      if (depth >= LIMITS.jsonDepth) throw refuse(`JSON nested deeper than ${LIMITS.jsonDepth}`);
      this.#at++;
      return next === "[" ? this.#array(depth + 1) : this.#object(depth + 1);
    }
    return this.#integer();
  }

  #integer(): number {
    const digits = this.#match(INTEGER)?.[0];
    if (digits === undefined) throw refuse(`JSON without a value at ${this.#at}`);
    const value = Number(digits);
    if (!Number.isSafeInteger(value)) throw refuse("a JSON integer beyond 2^53 - 1");
    return value;
  }

  #string(): string {
    this.#expect('"');
    const plain = this.#match(PLAIN)?.[0] ?? "";
    if (this.#skip('"')) return plain;
    let text = plain;
    while (!this.#skip('"')) text += this.#characters();
    return text;
  }

  /** Some of a string's characters, at least one. */
  #characters(): string {
    const codes: number[] = [];
    while (codes.length < CHUNK && !this.#text.startsWith('"', this.#at)) {
      codes.push(this.#character());
    }
    return String.fromCharCode(...codes);
  }

  /** A UTF-16 code unit of a string: as it is, or as its escape. */
  #character(): number {
    const code = this.#text.charCodeAt(this.#at);
    if (code !== BACKSLASH) {
      if (!(code >= FIRST_PLAIN)) throw refuse(`a JSON string that is broken at ${this.#at}`);
      this.#at++;
      return code;
    }
    const short = BY_LETTER.get(this.#text.charCodeAt(this.#at + 1));
    if (short !== undefined) {
      this.#at += 2;
      return short;
    }
    const high = DIGITS.get(this.#text.charCodeAt(this.#at + 4)) ?? FIRST_PLAIN;
    const low = DIGITS.get(this.#text.charCodeAt(this.#at + 5)) ?? FIRST_PLAIN;
    const control = 16 * high + low;
    const isControl = this.#text.startsWith("u00", this.#at + 1) && control < FIRST_PLAIN;
    if (!isControl || HAS_SHORT.has(control)) throw refuse("a JSON string with another escape");
    this.#at += 6;
    return control;
  }

  #array(depth: number): Json[] {
    const items: Json[] = [];
    if (this.#skip("]")) return items;
    do items.push(this.value(depth));
    while (this.#skip(","));
    this.#expect("]");
    return items;
  }

  /** Members ascend by UTF-16 code units (RFC 8785), as JavaScript compares strings. */
  #object(depth: number): JsonObject {
    const members: JsonObject = new Map();
    if (this.#skip("}")) return members;
    let before: string | undefined;
    do {
      const name = this.#string();
      if (before !== undefined && before >= name) throw refuse("JSON members out of order");
      before = name;
      this.#expect(":");
      members.set(name, this.value(depth));
    } while (this.#skip(","));
    this.#expect("}");
    return members;
  }

  end(): void {
    if (this.#at !== this.#text.length) throw refuse("bytes behind the JSON value");
  }
}

/** The value of canonical JSON of at most `limit` bytes; everything else is refused (1.11). */
export function readJson(bytes: Uint8Array, limit: number): Json {
  if (bytes.length > limit) throw refuse(`JSON of ${bytes.length} bytes, over ${limit}`);
  if (countValues(bytes) > LIMITS.jsonValues) throw refuse("JSON of too many values");
  const reader = new JsonReader(fromUtf8(bytes));
  const value = reader.value(0);
  reader.end();
  return value;
}

function text(value: Json, depth: number): string {
  if (typeof value === "string") return written(value);
  if (typeof value === "number") {
    if (!Number.isSafeInteger(value)) throw refuse("a JSON number that is no integer of 1.9");
    return String(value);
  }
  if (value === null || typeof value === "boolean") return String(value);
  if (depth >= LIMITS.jsonDepth) throw refuse(`JSON nested deeper than ${LIMITS.jsonDepth}`);
  if (Array.isArray(value)) return `[${value.map((item) => text(item, depth + 1)).join(",")}]`;
  const names = [...value.keys()].sort();
  const member = (name: string): string =>
    `${written(name)}:${text(value.get(name) ?? null, depth + 1)}`;
  return `{${names.map(member).join(",")}}`;
}

/** The canonical bytes of a value (1.8). */
export function writeJson(value: Json): Uint8Array {
  return toUtf8(text(value, 0));
}

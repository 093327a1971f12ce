/** Members of canonical JSON, each taken by its kind (COMMITMENTS 7.5, 9.3). */

import { digestFromHex } from "./bytes.ts";
import { refuse } from "./errors.ts";
import type { Json, JsonObject } from "./json.ts";

/** A name of COMMITMENTS 7.6.1. */
const NAME = /^[a-z][a-z0-9-]{0,39}$/;
/** A decimal string of COMMITMENTS 7.5.2. */
const DECIMAL = /^(?:0|[1-9][0-9]{0,19})$/;

export function objectOf(value: Json): JsonObject {
  if (!(value instanceof Map)) throw refuse("a JSON value that is no object");
  return value;
}

/** The members of an object that has exactly these names, by name. */
export function exactly<Name extends string>(
  value: Json,
  names: readonly Name[],
): (name: Name) => Json {
  const object = objectOf(value);
  if (object.size !== names.length || !names.every((name) => object.has(name))) {
    throw refuse(`an object with other members than ${names.join(", ")}`);
  }
  return (name) => object.get(name) ?? null;
}

/** An array of `least` to `most` items. */
export function listOf(value: Json, least: number, most: number): Json[] {
  if (!Array.isArray(value)) throw refuse("a JSON value that is no array");
  if (value.length < least || value.length > most)
    throw refuse(`an array of ${value.length} items`);
  return value;
}

export function stringOf(value: Json): string {
  if (typeof value !== "string") throw refuse("a JSON value that is no string");
  return value;
}

export function booleanOf(value: Json): boolean {
  if (typeof value !== "boolean") throw refuse("a JSON value that is neither true nor false");
  return value;
}

/** An integer from `least` to `most`. */
export function integerOf(value: Json, least: number, most: number): number {
  if (typeof value !== "number") throw refuse("a JSON value that is no integer");
  if (value < least || value > most) throw refuse(`the integer ${value} is out of range`);
  return value;
}

/** A digest (COMMITMENTS 1.1). */
export function digestOf(value: Json): Uint8Array {
  return digestFromHex(stringOf(value));
}

/** A decimal string of a number up to `most` (COMMITMENTS 7.5.2). */
export function decimalOf(value: Json, most: bigint): bigint {
  const text = stringOf(value);
  if (!DECIMAL.test(text) || BigInt(text) > most) throw refuse("no decimal string in range");
  return BigInt(text);
}

/** A name of COMMITMENTS 7.6.1. */
export function nameOf(value: Json): string {
  const text = stringOf(value);
  if (!NAME.test(text)) throw refuse("no name of COMMITMENTS 7.6.1");
  return text;
}

/** Reads the golden vectors of the repository. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { fromHex } from "../../src/bytes.ts";

/** A file under `vectors/`. */
export function vectorBytes(path: string): Uint8Array {
  return readFileSync(fileURLToPath(new URL(`../../../vectors/${path}`, import.meta.url)));
}

/** A JSON file under `vectors/`; the caller says what it holds. */
// eslint-disable-next-line @typescript-eslint/no-unnecessary-type-parameters
export function vectors<T>(path: string): T {
  return JSON.parse(new TextDecoder().decode(vectorBytes(path))) as T;
}

export function unhex(values: readonly string[]): Uint8Array[] {
  return values.map(fromHex);
}

/** A list with another item at one place. */
export function replaced<T>(items: readonly T[], at: number, item: T): T[] {
  return items.map((own, i) => (i === at ? item : own));
}

/** A job's scalars: one value for every step, or a table (COMMITMENTS 7.3). */
import { compareNames } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { readHexFloat } from "../hexfloat.ts";
import type { Json } from "../json.ts";
import { LIMITS } from "../limits.ts";
import { objectOf, stringOf } from "../members.ts";
import { Writer } from "../writer.ts";

/** Kind 0 is a number, kind 1 an array. */
export type Scalar = number | readonly number[];
export type Scalars = ReadonlyMap<string, Scalar>;

function valueOf(value: Json): number {
  const number = readHexFloat(stringOf(value));
  if (!Number.isFinite(number)) throw refuse("a scalar that is not finite");
  return number;
}

/** The member `scalars` of a manifest (7.5.1); JSON has fewer values than a table may have (11.1). */
export function scalarsOf(value: Json): Scalars {
  const members = objectOf(value);
  if (members.size > LIMITS.scalarTables) throw refuse("a job of too many scalars");
  const scalars = new Map<string, Scalar>();
  for (const [name, held] of members) {
    scalars.set(name, Array.isArray(held) ? held.map(valueOf) : valueOf(held));
  }
  return scalars;
}

/** The scalars digest (7.3). */
export function scalarsDigest(scalars: Scalars): Uint8Array {
  const out = Writer.tagged("scalars/1");
  return out
    .list([...scalars.keys()].sort(compareNames), (name) => {
      const held = scalars.get(name) ?? [];
      const values = typeof held === "number" ? [held] : held;
      out.text(name).u8(typeof held !== "number");
      out.list(values, (value) => out.f64(value));
    })
    .digest();
}

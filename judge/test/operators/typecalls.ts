/** Calls in words, whose types are inferred: good ones, and those that NUMERICS 15 and 16 refuse. */
import { expect, test } from "vitest";
import { RefusedError } from "../../src/errors.ts";
import type { Dtype } from "../../src/numbers/bits.ts";
import type { Attribute } from "../../src/operators/attributes.ts";
import type { TensorType } from "../../src/operators/call.ts";
import { readTable } from "../../src/operators/read.ts";
import { inferTypes } from "../../src/operators/types.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail } from "./calls.ts";

export const TABLE = readTable(jsonOfVectors("operators.json"));

type Given = Readonly<Record<string, Attribute>>;

/** `i64[2,3]`, or `none`; f32 where no dtype stands. */
function typeOf(text: string): TensorType | null {
  if (text === "none") return null;
  const [, dtype = "", sizes = ""] = /^([a-z0-9]*)\[([0-9,]*)\]$/.exec(text) ?? fail(text);
  const shape = sizes === "" ? [] : sizes.split(",").map(Number);
  return { dtype: (dtype === "" ? "f32" : dtype) as Dtype, shape };
}

const textOf = ({ dtype, shape }: TensorType): string =>
  `${dtype === "f32" ? "" : dtype}[${shape.join(",")}]`;

const ascending = (given: Given): [string, Attribute][] =>
  Object.entries(given).sort(([a], [b]) => (a < b ? -1 : 1));

/** Operands and outputs as words. */
export function types(name: string, operands: string, given: Given): string {
  const words = operands.split(" ").filter((word) => word !== "");
  return inferTypes(TABLE, name, new Map(ascending(given)), words.map(typeOf))
    .map(textOf)
    .join(" ");
}

/** What a call differs by from the good one: operands, or attributes, and what is said of it. */
export type Change = [operands: string | null, attributes: Given, sentence: RegExp];

/** A good call with its outputs, others that are good too, and calls that are refused. */
interface Group {
  readonly name: string;
  readonly operands: string;
  readonly attributes?: Given;
  readonly outputs: string;
  readonly also?: readonly [operands: string | null, attributes: Given, outputs: string][];
  readonly refused: readonly Change[];
}

export function check(groups: readonly Group[]): void {
  test.each(groups)(
    "$name($operands)",
    ({ name, operands, attributes, outputs, also, refused }) => {
      const base = attributes ?? {};
      expect(types(name, operands, base)).toBe(outputs);
      for (const [other, changes, want] of also ?? []) {
        expect(types(name, other ?? operands, { ...base, ...changes })).toBe(want);
      }
      for (const [other, changes, sentence] of refused) {
        const call = (): string => types(name, other ?? operands, { ...base, ...changes });
        expect(call, `${other ?? ""} ${Object.keys(changes).join()}`).toThrow(RefusedError);
        expect(call).toThrow(sentence);
      }
    },
  );
}

/** Calls of the vectors, and the whole value of a quantity over operands that are at hand. */
import { WIDTH, type Bits, type Dtype } from "../../src/numbers/bits.ts";
import { floatOfText, type Attribute } from "../../src/operators/attributes.ts";
import type { Reading, TensorType } from "../../src/operators/call.ts";
import {
  better,
  BLOCK,
  blockOf,
  isRefusal,
  type Outcome,
  type Quantity,
} from "../../src/operators/quantity.ts";

export interface Tensor extends TensorType {
  readonly elements: readonly Bits[];
}

/** An attribute of JSON, of the kind that the operator's table has. */
export function attributeOf(kind: string, value: unknown): Attribute {
  if (kind === "float") return floatOfText(String(value)) ?? fail(`no float: ${String(value)}`);
  if (kind === "int") return BigInt(value as number);
  if (kind === "ints") return (value as number[]).map(BigInt);
  return value as Attribute;
}

export const fail = (why: string): never => {
  throw new Error(why);
};

export const hexOf = (dtype: Dtype, bits: Bits): string =>
  bits.toString(16).padStart(2 * WIDTH[dtype], "0");

export class Refused extends Error {}

/** Makes the reads of a reading from operands at hand. */
export function read<T>(
  reading: Reading<Outcome<T>>,
  operands: readonly (Tensor | null)[],
  seen?: (operand: number, positions: readonly bigint[]) => void,
): T {
  let step = reading.next();
  while (step.done !== true) {
    const { operand, positions } = step.value;
    seen?.(operand, positions);
    const tensor = operands[operand] ?? fail(`a read of operand ${operand}, which is not there`);
    step = reading.next(
      positions.map((at) => tensor.elements[Number(at)] ?? fail(`a read at ${at.toString()}`)),
    );
  }
  if (isRefusal(step.value)) throw new Refused(step.value.refused);
  return step.value;
}

/** The value of a quantity, as honest parties would state it. */
export function valueOf(quantity: Quantity, operands: readonly (Tensor | null)[]): Bits {
  const needs = quantity.needs.map((need) => valueOf(need, operands));
  switch (quantity.kind) {
    case "local":
      return read(quantity.value(needs), operands);
    case "tree": {
      const { dtype, count } = quantity;
      return summed(dtype, count, (first, last) =>
        read(quantity.terms(first, last, needs), operands),
      );
    }
    case "terms": {
      const { dtype, count } = quantity;
      return summed(dtype, count, (first, last) =>
        Array.from({ length: last - first }, (_, k) => valueOf(quantity.term(first + k), operands)),
      );
    }
    case "chain": {
      let state = quantity.start;
      for (let low = 0; low < quantity.count; low += quantity.stretch) {
        const high = Math.min(low + quantity.stretch, quantity.count);
        state = read(quantity.links(low, high, state, needs), operands);
      }
      return state;
    }
    case "logged": {
      const reach = read(quantity.reach(needs), operands);
      if (reach.form === "none") return reach.value ?? 0n;
      return reach.form === "bounded" ? reach.due(undefined) : reach.middle;
    }
    case "extremum": {
      const all = Array.from({ length: quantity.count }, (_, k) => k);
      const elements = read(quantity.elements(all, needs), operands);
      let best = 0;
      elements.forEach((bits, k) => {
        if (better(quantity, elements[best] ?? 0n, bits) === 1) best = k;
      });
      return quantity.extreme === "argmax" ? BigInt(best) : (elements[best] ?? 0n);
    }
  }
}

/** Blocks of blocks (OPENING 2.7). */
function summed(
  dtype: Dtype | "real",
  count: number,
  terms: (a: number, b: number) => readonly Bits[],
): Bits {
  let values: Bits[] = [];
  for (let first = 0; first < count; first += BLOCK) {
    values.push(blockOf(dtype, terms(first, Math.min(first + BLOCK, count))));
  }
  while (values.length > 1) {
    const next: Bits[] = [];
    for (let first = 0; first < values.length; first += BLOCK) {
      next.push(blockOf(dtype, values.slice(first, first + BLOCK)));
    }
    values = next;
  }
  return values[0] ?? blockOf(dtype, []);
}

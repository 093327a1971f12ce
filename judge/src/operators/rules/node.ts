/** A node whose types are to be inferred: what the rules of NUMERICS 16 ask of it. */
import { refuse, type RefusedError } from "../../errors.ts";
import { isStored, type Dtype } from "../../numbers/bits.ts";
import type { Attributes } from "../attributes.ts";
import type { TensorType } from "../call.ts";
import type { Operator } from "../table.ts";

/** Sizes as whole numbers, as those of an output may be too large for a tensor. */
export type Shape = readonly bigint[];

/** The shapes of the outputs, `output_mask` not yet applied. */
export type Rule = (node: Node) => readonly Shape[];

export const product = (sizes: Shape): bigint => sizes.reduce((a, b) => a * b, 1n);

export const same = (a: Shape, b: Shape): boolean =>
  a.length === b.length && a.every((size, k) => size === b[k]);

export const textOf = (shape: Shape): string => `[${shape.join(",")}]`;

/** Attributes are of the operator's kinds, and operands of the table's dtypes, before a rule runs. */
export class Node {
  /** Operands that are there, by name; of `x*` the first. */
  readonly #operands = new Map<string, Shape>();
  /** All operands, in order. */
  readonly shapes: readonly (Shape | null)[];

  constructor(
    readonly operator: Operator,
    readonly attributes: Attributes,
    operands: readonly (TensorType | null)[],
  ) {
    this.shapes = operands.map((type) => type && type.shape.map(BigInt));
    operator.operands.forEach((name, number) => {
      const shape = this.shapes[number];
      if (shape) this.#operands.set(name, shape);
    });
  }

  /** `throw node.no("has …")`: the operator is the sentence's subject. */
  no(predicate: string): RefusedError {
    return refuse(`${this.operator.name} ${predicate}`);
  }

  has(name: string): boolean {
    return this.#operands.has(name);
  }

  shape(name: string): Shape {
    const found = this.#operands.get(name);
    if (found === undefined) throw this.no(`has no operand ${name}`);
    return found;
  }

  /** An operand that has so many axes. */
  axes(name: string, least: number, most = least): Shape {
    const shape = this.shape(name);
    const { length } = shape;
    if (length < least || length > most) throw this.no(`has an operand ${name} of ${length} axes`);
    return shape;
  }

  /** Demands that the operand, if it is there, has this shape. */
  match(name: string, shape: Shape): void {
    if (!this.has(name) || same(this.shape(name), shape)) return;
    throw this.no(`has ${name} of shape ${textOf(this.shape(name))}, not ${textOf(shape)}`);
  }

  int(name: string): bigint {
    const held = this.attributes.get(name);
    if (typeof held !== "bigint") throw this.no(`has no integer ${name}`);
    return held;
  }

  float(name: string): number {
    const held = this.attributes.get(name);
    if (typeof held !== "number") throw this.no(`has no float ${name}`);
    return held;
  }

  flag(name: string): boolean {
    return this.attributes.get(name) === true;
  }

  /** A str, one of these words. */
  word(name: string, words: readonly string[]): string {
    const found = words.find((word) => word === this.attributes.get(name));
    if (found === undefined) throw this.no(`has ${name} that is none of ${words.join(", ")}`);
    return found;
  }

  ints(name: string): readonly bigint[] {
    const held = this.attributes.get(name);
    if (!Array.isArray(held)) throw this.no(`has no list ${name}`);
    return (held as readonly unknown[]).filter((one) => typeof one === "bigint");
  }

  /** An int from `least` to `most`. */
  within(name: string, least: bigint, most: bigint): bigint {
    const held = this.int(name);
    if (held < least || held > most) throw this.no(`has ${name} outside of ${least} to ${most}`);
    return held;
  }

  /** Two numbers, for rows and columns; one stands for both (NUMERICS 15.3). */
  pair(name: string, least: bigint, most: bigint): readonly [bigint, bigint] {
    const held = this.ints(name);
    const [rows, columns = rows] = held;
    if (rows === undefined || columns === undefined || held.length > 2) {
      throw this.no(`has ${name} of ${held.length} numbers, not of one or two`);
    }
    if (held.some((one) => one < least || one > most)) {
      throw this.no(`has ${name} outside of ${least} to ${most}`);
    }
    return [rows, columns];
  }

  /** The axis that a number names (NUMERICS 3.3); of a tensor without axes there is axis 0. */
  axis(shape: Shape, number: bigint): number {
    const count = BigInt(Math.max(shape.length, 1));
    if (number < -count || number >= count) throw this.no(`has no axis ${number}`);
    return Number(number < 0n ? number + count : number);
  }

  /** The attribute `dim` as an axis of this shape. */
  dim(shape: Shape): number {
    return this.axis(shape, this.int("dim"));
  }
}

/** The shape with another size along one axis. A tensor without axes keeps its shape. */
export const withSize = (shape: Shape, axis: number, size: bigint): Shape =>
  shape.map((one, k) => (k === axis ? size : one));

/** bc of NUMERICS 16.1. */
export function broadcast(node: Node, ...shapes: readonly Shape[]): Shape {
  const rank = Math.max(...shapes.map(({ length }) => length));
  return Array.from({ length: rank }, (_, k) => {
    let size = 1n;
    for (const shape of shapes) {
      const own = shape[k - rank + shape.length] ?? 1n;
      if (size !== 1n && own !== 1n && own !== size) {
        throw node.no(`has shapes ${shapes.map(textOf).join(" and ")}, which do not broadcast`);
      }
      if (own !== 1n) size = own;
    }
    return size;
  });
}

/** Whether a dtype can hold a float attribute (NUMERICS 9.2, 10.1): floats hold every one. */
export function fits(dtype: Dtype, value: number): boolean {
  if (dtype === "f32" || dtype === "f64") return true;
  if (isStored(dtype)) return false;
  const [least, beyond] = RANGES[dtype];
  return Number.isInteger(value) && value >= least && value < beyond;
}

const RANGES = {
  i64: [-(2 ** 63), 2 ** 63],
  i32: [-(2 ** 31), 2 ** 31],
  u8: [0, 2 ** 8],
  bool: [0, 2],
} as const;

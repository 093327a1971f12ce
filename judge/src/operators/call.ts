/** One call of an operator: what a node of a program says of it, without a tensor's content. */
import type { Bits } from "../numbers/bits.ts";
import type { TensorType } from "../tensors.ts";
import type { Attributes } from "./attributes.ts";
import type { Operator } from "./table.ts";

export type { TensorType };

export interface Call {
  readonly operator: Operator;
  readonly attributes: Attributes;
  /** In the program's order; null of one that is absent. */
  readonly operands: readonly (TensorType | null)[];
  /** Those that exist. */
  readonly outputs: readonly TensorType[];
}

/** Elements of one operand that are read at once, at row-major positions (OPENING 5.1). */
export interface Read {
  readonly operand: number;
  /** They may lie outside of the operand: the reader of elements looks (OPENING 5.2). */
  readonly positions: readonly bigint[];
}

/** Reads, one after another; it is sent the bits of the elements read, and ends with a result. */
export type Reading<T> = Generator<Read, T, readonly Bits[]>;

/** A clause refuses the values of an operand (NUMERICS 1.13, OPENING 5.6). */
export class RefusedByClause extends Error {
  override name = "RefusedByClause";
}

/** Operands that are there, by name, and their numbers. A last `x*` is its first operand. */
export class Operands {
  readonly names: ReadonlySet<string>;
  readonly #types = new Map<string, TensorType>();

  constructor(readonly call: Call) {
    call.operator.operands.forEach((name, number) => {
      const type = call.operands[number];
      if (type) this.#types.set(name, type);
    });
    this.names = new Set(this.#types.keys());
  }

  /** The number of an operand in the program's order. */
  number(name: string): number {
    return this.call.operator.operands.indexOf(name);
  }

  type(name: string): TensorType {
    const found = this.#types.get(name);
    if (found === undefined) throw new Error(`${this.call.operator.name} has no operand ${name}`);
    return found;
  }

  /** The first operand that is there, if one is. */
  get first(): TensorType | undefined {
    return this.call.operands.find((type) => type !== null) ?? undefined;
  }
}

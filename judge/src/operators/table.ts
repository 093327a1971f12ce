/**
 * The table of operators: what vectors/operators.json holds (vectors/operators.md says what its
 * words mean), as `read.ts` reads it.
 */
import type { Dtype } from "../numbers/bits.ts";
import type { Condition } from "./attributes.ts";

/** `index` is a whole number; `moved` the output's dtype, whose elements keep their bits. */
export type NodeDtype = Dtype | "index" | "moved";

/** A value or a position: a node of a graph, after the nodes that it is made of. */
export interface Node {
  readonly kind: string;
  readonly dtype: NodeDtype;
  /** Numbers of its parts; none of a leaf. */
  readonly of: readonly number[];
  /** Of an operand or attribute. Of a `part`: of the quantity. */
  readonly name?: string;
  /** A constant's number: hexadecimal text of a float. */
  readonly number?: string | bigint | boolean;
  /** A constant's number among the real numbers (OPENING 10), where it is another one. */
  readonly real?: string;
  /** What a `case` asks. */
  readonly condition?: Condition;
  /** The number of a quantity in its list. */
  readonly part?: number;
}

/** An operator of one element of each operand. */
export interface Form {
  readonly dtypes: readonly Dtype[];
  readonly nodes: readonly Node[];
  readonly outputs: readonly number[];
  readonly when?: Condition;
  readonly refused?: number;
  readonly why?: string;
}

/** A factor of a dot: its value, and its group (NUMERICS 17.3). */
export interface Factor {
  readonly value: number;
  readonly member: number;
  readonly each: number;
}

interface Named {
  readonly name: string;
  readonly dtype: Dtype | "moved";
  /** Parts that come before those that appear in the values. */
  readonly first: readonly number[];
  /** Elements that are read before those in the value. */
  readonly reads: readonly number[];
}

/** What follows a start, one after the other: those values of which `kept` holds. */
interface Following {
  readonly value: number;
  readonly count: number;
  readonly start: number;
  readonly kept?: number;
}

/** A quantity of OPENING 2. Numbers are those of nodes, but `of` and `first` those of parts. */
export type Part =
  | (Named & { readonly kind: "local"; readonly value: number })
  | (Named & { readonly kind: "tree"; readonly value: number; readonly count: number })
  | (Named & {
      readonly kind: "extremum";
      readonly value: number;
      readonly count: number;
      readonly extreme: "max" | "min" | "argmax";
    })
  | (Named & Following & { readonly kind: "chain" })
  | (Named & Following & { readonly kind: "latest" })
  | (Named & { readonly kind: "terms"; readonly count: number; readonly of: number })
  | (Named & {
      readonly kind: "fold";
      readonly count: number;
      readonly divisor: number;
      readonly of: number;
    })
  | (Named & {
      readonly kind: "dot";
      readonly count: number;
      readonly inner: number;
      readonly factors: readonly [Factor, Factor];
    })
  | (Named & {
      readonly kind: "case";
      readonly of: readonly [number, number];
      readonly condition: Condition;
    });

/** The quantities of an operator, for one dtype of the first operand. */
export interface Parts {
  readonly nodes: readonly Node[];
  readonly parts: readonly Part[];
  readonly outputs: readonly number[];
}

/** An attribute's kind (NUMERICS 15.1); the judge is given every attribute, and needs no default. */
export interface AttributeRule {
  readonly kind: "int" | "float" | "bool" | "str" | "ints" | "bools" | "dtype";
  readonly optional: boolean;
}

export interface Operator {
  readonly name: string;
  readonly clause: string;
  readonly class: string;
  /** The operands' names, without the table's `?` and `*`. */
  readonly operands: readonly string[];
  /** Those that may be absent: `?` of the table. */
  readonly optional: ReadonlySet<string>;
  /** Whether the last one stands for any number of operands: `*` of the table. */
  readonly repeated: boolean;
  readonly attributes: ReadonlyMap<string, AttributeRule>;
  readonly forms?: readonly Form[];
  readonly parts?: ReadonlyMap<Dtype | "moved", Parts>;
  readonly maskedBy?: string;
  /** NUMERICS 13.1: its f32 elements are R of an exact sum. */
  readonly rounded?: "sum" | "divided";
  /** The contracts that define it, where not all do (NUMERICS 18.1): `ordered/1`. */
  readonly contracts?: ReadonlySet<string>;
  /** The clause of OPENING that writes the real numbers of a form down. */
  readonly realClause?: string;
}

export type OperatorTable = ReadonlyMap<string, Operator>;

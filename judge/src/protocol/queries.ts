/** The queries of PROTOCOL 2.1. Layout and length are in `messages.ts`. */

export type Party = 0 | 1;

/** A node's inputs or outputs (PROTOCOL 2.2). */
export type Side = 0 | 1;

/** A range of leaves, parts of which are asked for (2.4). */
export interface Range {
  readonly first: number;
  readonly count: number;
}

/** The views of a quantity and their three numbers (PROTOCOL 6.4). */
export type View =
  | { readonly view: "needs" }
  | { readonly view: "blocks"; readonly level: number; readonly index: number }
  | {
      readonly view: "states";
      readonly first: number;
      readonly last: number;
      readonly stride: number;
    }
  | { readonly view: "witness" }
  | { readonly view: "terms"; readonly first: number; readonly last: number };

export type Query =
  | { readonly kind: "checkpoints"; readonly indices: readonly number[] }
  | { readonly kind: "states"; readonly steps: readonly number[] }
  | { readonly kind: "loss"; readonly step: number }
  | { readonly kind: "nodes"; readonly step: number }
  | { readonly kind: "node hashes"; readonly step: number; readonly range: Range }
  | { readonly kind: "node"; readonly step: number; readonly node: number }
  | { readonly kind: "slot"; readonly step: number; readonly name: string }
  | {
      readonly kind: "tensor hashes";
      readonly step: number;
      readonly node: number;
      readonly side: Side;
      readonly operand: number;
      readonly range: Range;
    }
  | {
      readonly kind: "leaf";
      readonly step: number;
      readonly node: number;
      readonly side: Side;
      readonly operand: number;
      readonly leaf: number;
    }
  | {
      readonly kind: "values";
      readonly step: number;
      readonly node: number;
      readonly output: number;
      readonly element: number;
      readonly path: readonly number[];
      readonly view: View;
    }
  | {
      readonly kind: "opening";
      readonly step: number;
      readonly node: number;
      readonly operand: number;
      readonly leaves: readonly number[];
    }
  | { readonly kind: "record"; readonly index: number }
  | { readonly kind: "log"; readonly step: number }
  | {
      readonly kind: "log hashes";
      readonly step: number;
      readonly section: number;
      readonly range: Range;
    }
  | {
      readonly kind: "log block";
      readonly step: number;
      readonly section: number;
      readonly block: number;
    }
  | {
      readonly kind: "record part";
      readonly data: number;
      readonly record: number;
      readonly part: number;
    };

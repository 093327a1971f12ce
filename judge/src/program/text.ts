/** What a program's text says (PROGRAM 1, 2, 6.2 to 6.4), its operands resolved. */
import type { Attributes } from "../operators/index.ts";
import type { TensorType } from "../tensors.ts";
import type { Input, Source } from "./program.ts";

/** A node of the text; the commit node is one. */
export interface TextNode {
  readonly operator: string;
  readonly attributes: Attributes;
  /** Of earlier nodes or inputs of this text; absent ones are null. */
  readonly operands: readonly (Source | null)[];
  readonly outputs: readonly TensorType[];
}

export interface Named {
  readonly name: string;
  readonly value: Source;
}

/** The section of a text 2: its nodes, and the slots that go from micro-batch to micro-batch. */
export interface Section {
  readonly nodes: number;
  readonly carries: readonly Named[];
}

export interface ProgramText {
  readonly version: 1 | 2;
  readonly contract: string;
  /** In the bytewise order of their names. */
  readonly inputs: ReadonlyMap<string, Input>;
  /** Null of a text 1. */
  readonly section: Section | null;
  readonly nodes: readonly TextNode[];
  /** In the bytewise order of their names. */
  readonly outputs: readonly Named[];
}

/** The type of an operand. */
export function typeOf(text: ProgramText, source: Source): TensorType {
  const type =
    source.from === "input"
      ? text.inputs.get(source.name)?.type
      : text.nodes[source.node]?.outputs[source.output];
  if (type === undefined) throw new Error("an operand that the text does not have");
  return type;
}

/**
 * The values that a line of a program can name (PROGRAM 1.3, 2.4): inputs, and outputs of the nodes
 * before it. Each is one object, however many operands it is.
 */
import { refuse } from "../errors.ts";
import type { Source } from "./program.ts";

/** A value as it is written. */
export type Value =
  { readonly input: string } | { readonly node: number; readonly output: number | null };

export class Values {
  readonly #inputs = new Map<string, Source>();
  readonly #nodes: Source[][] = [];

  addInput(name: string): void {
    this.#inputs.set(name, { from: "input", name });
  }

  /** The next node, with so many outputs. */
  addNode(outputs: number): void {
    const node = this.#nodes.length;
    this.#nodes.push(
      Array.from({ length: outputs }, (_, output) => ({ from: "node", node, output })),
    );
  }

  /** The value that is meant. The output of a node has a number if there are several (2.4). */
  source(value: Value): Source {
    if ("input" in value) {
      const input = this.#inputs.get(value.input);
      if (input === undefined) throw refuse(`there is no input ${value.input}`);
      return input;
    }
    const outputs = this.#nodes[value.node] ?? [];
    const isNumbered = value.output !== null;
    const source = outputs[value.output ?? 0];
    if (source === undefined || isNumbered !== outputs.length > 1) {
      throw refuse(`there is no such value of node ${value.node}`);
    }
    return source;
  }
}

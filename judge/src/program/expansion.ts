/**
 * The nodes that a text stands for (PROGRAM 6.7). Nodes are made when they are asked for: V
 * micro-batches of N nodes are never all there.
 */
import { refuse } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import type { Attributes, OperatorTable } from "../operators/index.ts";
import { FOLD } from "./formed.ts";
import type { Input, Source } from "./program.ts";
import type { ProgramText, Section, TextNode } from "./text.ts";

/** What one node of an expansion is, in terms of the expansion. */
export interface ExpandedNode {
  readonly operator: string;
  readonly attributes: Attributes;
  readonly operands: readonly (Source | null)[];
}

/** Of a batch input: its first place in the step's batch, and the field that it holds. */
export interface BatchInput {
  readonly first: number;
  readonly field: string;
}

export interface Expansion {
  /** COMMIT included. */
  readonly nodeCount: number;
  /** The first node of the last micro-batch; all nodes are one micro-batch where there are none. */
  readonly lastMicroBatch: number;
  node(index: number): ExpandedNode;
  /** The node of the text with the operator, the operands' types and the outputs of a node. */
  origin(index: number): TextNode;
  /** The value of an output of the program. */
  value(source: Source): Source;
  input(name: string): Input;
  batchInput(name: string): BatchInput;
}

const BATCH = "batch.";

function known<T>(found: T | undefined, what: string): T {
  if (found === undefined) throw refuse(`the program has no such ${what}`);
  return found;
}

/** The expansion of a text 1, which is the text. */
class PlainExpansion implements Expansion {
  readonly nodeCount: number;
  readonly lastMicroBatch = 0;

  constructor(readonly text: ProgramText) {
    this.nodeCount = text.nodes.length;
  }

  node(index: number): ExpandedNode {
    return this.origin(index);
  }

  origin(index: number): TextNode {
    return known(this.text.nodes[index], "node");
  }

  value(source: Source): Source {
    return source;
  }

  input(name: string): Input {
    return known(this.text.inputs.get(name), "input");
  }

  batchInput(name: string): BatchInput {
    if (this.input(name).kind !== "batch") throw refuse(`${name} is no batch input`);
    return { first: 0, field: name.slice(BATCH.length) };
  }
}

/** Values that one fold reads at most (NUMERICS 10.12). */
const FOLD_VALUES = 256;
/** V at most (6.7): so the folds of 6.7 (c) have one level below the last. */
const MICRO_BATCHES = FOLD_VALUES ** 2;
/** V times the number of folds (6.8). */
const FOLDED_VALUES = 2 ** 22;
/** V·R (6.7 a). */
const DRAWS = 2n ** 32n;

/** A batch input of 6.7 (b). */
const MICRO_NAME = /^(.*)#(0|[1-9][0-9]{0,4})$/;

/** The expansion of a text 2 for V micro-batches. */
class MicroExpansion implements Expansion {
  readonly nodeCount: number;
  readonly lastMicroBatch: number;
  /** N of 6.7, and V·N, from where on the tail's nodes stand. */
  readonly #size: number;
  readonly #tail: number;
  /** R of 6.7. */
  readonly #draws: bigint;
  /** Nodes that stand before each fold (6.7 c). */
  readonly #blocks: number;
  /** The place of each node of the tail, from the tail's beginning. */
  readonly #places: Int32Array;
  readonly #carries: ReadonlyMap<string, Source>;

  constructor(
    readonly text: ProgramText,
    section: Section,
    readonly V: number,
    readonly table: OperatorTable,
  ) {
    if (V < 1 || V > MICRO_BATCHES) throw refuse(`${V} micro-batches`);
    this.#size = section.nodes;
    this.#tail = V * this.#size;
    this.lastMicroBatch = this.#tail - this.#size;
    this.#carries = new Map(section.carries.map(({ name, value }) => [name, value]));
    this.#blocks = V > FOLD_VALUES ? Math.ceil(V / FOLD_VALUES) : 0;
    this.#draws = this.#countDraws();
    if (BigInt(V) * this.#draws > DRAWS) throw refuse("draws of too many micro-batches");
    const tail = text.nodes.slice(this.#size);
    const folds = tail.filter(({ operator }) => operator === FOLD).length;
    if (V * folds > FOLDED_VALUES) throw refuse("folds of too many micro-batches");
    this.nodeCount = this.#tail + tail.length + folds * this.#blocks;
    if (this.nodeCount > LIMITS.nodes) throw refuse("an expansion of too many nodes");
    const batches = [...text.inputs.values()].filter(({ kind }) => kind === "batch").length;
    if (text.inputs.size + (V - 1) * batches > LIMITS.slots) {
      throw refuse("an expansion of too many inputs");
    }
    this.#places = new Int32Array(tail.length);
    let place = 0;
    for (const [k, { operator }] of tail.entries()) {
      if (operator === FOLD) place += this.#blocks;
      this.#places[k] = place++;
    }
  }

  #countDraws(): bigint {
    let most = 0n;
    for (const node of this.text.nodes.slice(0, this.#size)) {
      const draw = this.#drawOf(node);
      if (draw !== undefined && draw >= most) most = draw + 1n;
    }
    return most;
  }

  /** The draw of a random node. */
  #drawOf({ operator, attributes }: TextNode): bigint | undefined {
    const draw = attributes.get("draw");
    const isRandom = this.table.get(operator)?.class === "random";
    return isRandom && typeof draw === "bigint" ? draw : undefined;
  }

  node(index: number): ExpandedNode {
    if (index < this.#tail) {
      return this.#ofSection(Math.floor(index / this.#size), index % this.#size);
    }
    const node = this.origin(index);
    if (node.operator === FOLD) return this.#fold(node, index);
    const operands = node.operands.map((source) => source && this.value(source));
    return { operator: node.operator, attributes: node.attributes, operands };
  }

  origin(index: number): TextNode {
    const at =
      index < this.#tail ? index % this.#size : this.#size + this.#tailNode(index - this.#tail);
    return known(this.text.nodes[at], "node");
  }

  /** The first node of the tail whose place is not before this one. */
  #tailNode(place: number): number {
    let [low, high] = [0, this.#places.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#places[middle] ?? 0) < place) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Node `at` of the section, of micro-batch v (6.4, 6.7 a and b). */
  #ofSection(v: number, at: number): ExpandedNode {
    const node = known(this.text.nodes[at], "node");
    const draw = this.#drawOf(node);
    const attributes = new Map(node.attributes);
    if (draw !== undefined) attributes.set("draw", BigInt(v) * this.#draws + draw);
    const operands = node.operands.map((source) => source && this.#sectionOperand(v, source));
    return { operator: node.operator, attributes, operands };
  }

  #sectionOperand(v: number, source: Source): Source {
    if (source.from === "node") return this.#ofMicroBatch(v, source);
    const { name } = source;
    if (this.text.inputs.get(name)?.kind === "batch")
      return { from: "input", name: `${name}#${v}` };
    const carried = this.#carries.get(name);
    return v === 0 || carried === undefined ? source : this.#ofMicroBatch(v - 1, carried);
  }

  /** What a value of the section is in micro-batch v. */
  #ofMicroBatch(v: number, source: Source): Source {
    if (source.from === "input") return source;
    return { ...source, node: v * this.#size + source.node };
  }

  /** A value that the tail reads: a carried one is that of the last micro-batch (6.4). */
  value(source: Source): Source {
    if (source.from === "input") return source;
    if (source.node < this.#size) return this.#ofMicroBatch(this.V - 1, source);
    return { ...source, node: this.#tail + (this.#places[source.node - this.#size] ?? 0) };
  }

  /** A fold, or one of the nodes that stand before it and fold 256 values each (6.7 c). */
  #fold(node: TextNode, index: number): ExpandedNode {
    const { operator, attributes, operands } = node;
    const [value] = operands;
    if (!value) throw new Error("a fold without its operand");
    const values = (first: number, end: number): Source[] =>
      Array.from({ length: end - first }, (_, k) => this.#ofMicroBatch(first + k, value));
    if (this.#blocks === 0) return { operator, attributes, operands: values(0, this.V) };
    const place = index - this.#tail;
    const last = this.#places[this.#tailNode(place)] ?? place;
    const block = this.#blocks - (last - place);
    if (block < this.#blocks) {
      const first = block * FOLD_VALUES;
      const read = values(first, Math.min(first + FOLD_VALUES, this.V));
      return { operator, attributes: new Map([["mean", false]]), operands: read };
    }
    const blocks = Array.from({ length: this.#blocks }, (_, k): Source => ({
      from: "node",
      node: index - this.#blocks + k,
      output: 0,
    }));
    const isMean = attributes.get("mean") === true;
    const counted: Attributes = new Map([["count", BigInt(this.V)], ...attributes]);
    return { operator, attributes: isMean ? counted : attributes, operands: blocks };
  }

  /** Inputs of kind batch have other names than in the text (6.7 b). */
  input(name: string): Input {
    const [, batch, v] = MICRO_NAME.exec(name) ?? [];
    const input = known(this.text.inputs.get(batch ?? name), "input");
    const isMicro = v !== undefined && Number(v) < this.V;
    if ((input.kind === "batch") !== isMicro) throw refuse("the program has no such input");
    return input;
  }

  batchInput(name: string): BatchInput {
    const [, batch = "", v = ""] = MICRO_NAME.exec(name) ?? [];
    const { kind, type } = this.input(name);
    if (kind !== "batch") throw refuse(`${name} is no batch input`);
    return { first: Number(v) * (type.shape[0] ?? 0), field: batch.slice(BATCH.length) };
  }
}

/** The expansion of a text for V micro-batches; a text 1 has one (COMMITMENTS 7.6.9). */
export function expansionOf(text: ProgramText, V: number, table: OperatorTable): Expansion {
  if (text.section !== null) return new MicroExpansion(text, text.section, V, table);
  if (V !== 1) throw refuse("a text 1 in micro-batches");
  return new PlainExpansion(text);
}

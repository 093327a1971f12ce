/** Quantities from the parts of the table (vectors/operators.md: Parts) under `ordered/1`. */
import { add32, div32, fma32 } from "../numbers/binary32.ts";
import { bitsOf, numberOf, type Bits, type Dtype, type Scalar } from "../numbers/bits.ts";
import { holds } from "./attributes.ts";
import type { Pair } from "../numbers/pairs.ts";
import { Operands, type Call, type Reading } from "./call.ts";
import { Evaluation, type Column } from "./graph.ts";
import { isSet } from "./primitives.ts";
import { refusing, type Chain, type Extremum, type Quantity } from "./quantity.ts";
import type { Node, Part, Parts } from "./table.ts";

/** Terms of one link of a DOT (OPENING 1.8). */
export const CHUNK = 128;
/** Links of a scatter or a cumulative sum that are executed at once (OPENING 2.6). */
export const STRETCH = 256;

export type Of<Kind extends Part["kind"]> = Extract<Part, { kind: Kind }>;

/** The parts of an operator that a call has, for one element of one output. */
export class Opened {
  readonly parts: Parts;
  readonly operands: Operands;

  /** `term` is the number of a part that is a term of another. */
  constructor(
    readonly call: Call,
    parts: Parts,
    readonly output: number,
    readonly element: bigint,
    readonly term?: bigint,
  ) {
    this.parts = parts;
    this.operands = new Operands(call);
  }

  /** The quantity of part number `number`, its cases decided. */
  quantity(number: number): Quantity {
    const [part] = this.resolved(number);
    switch (part.kind) {
      case "local":
        return this.#local(part);
      case "tree":
        return this.#tree(part);
      case "extremum":
        return this.#extremum(part);
      case "chain":
        return this.#chain(part);
      case "latest":
        return this.#latest(part);
      case "terms":
        return this.#terms(part);
      case "fold":
        return this.#fold(part);
      case "dot":
        return this.dot(part);
    }
  }

  /** A part that is no case, and its number. */
  resolved(number: number): [Exclude<Part, { kind: "case" }>, number] {
    const part = this.parts.parts[number];
    if (part === undefined) throw new Error(`no part ${number}`);
    if (part.kind !== "case") return [part, number];
    const there = holds(part.condition, this.call.attributes, this.operands.names);
    return this.resolved(part.of[there ? 0 : 1]);
  }

  /** The dtype of what is moved is the output's. */
  dtype(of: Dtype | "moved"): Dtype {
    return of === "moved" ? this.#moved() : of;
  }

  #moved(): Dtype {
    const type = this.call.outputs[this.output];
    if (type === undefined) throw new Error(`no output ${this.output}`);
    return type.dtype;
  }

  /** An evaluation of the graph's nodes. Parts that stand in it are `agreed`, by their numbers. */
  evaluation(
    terms: Column = this.term ?? 0n,
    agreed: ReadonlyMap<number, Bits | Pair> = new Map(),
    reals = false,
  ): Evaluation {
    const { call, operands, output, element } = this;
    const part = (number: number): Bits | Pair => {
      const found = agreed.get(this.resolved(number)[1]);
      if (found === undefined) throw new Error(`no value of part ${number}`);
      return found;
    };
    const { nodes } = this.parts;
    return new Evaluation({ call, operands, output, nodes, element, terms, part, reals });
  }

  /** The whole number that a node is, without any element. */
  count(node: number): number {
    const step = this.evaluation().single(node).next();
    if (step.done !== true) throw new Error("a count that depends on an element");
    return Number(step.value);
  }

  node(number: number): Node {
    const found = this.parts.nodes[number];
    if (found === undefined) throw new Error(`no node ${number}`);
    return found;
  }

  /** The parts that a part needs: those that come `first`, then as they appear in the values. */
  needed(part: Part, values: readonly number[]): number[] {
    const found = new Set(part.first.map((number) => this.resolved(number)[1]));
    const looked = new Set<number>();
    const look = (number: number): void => {
      if (looked.has(number)) return;
      looked.add(number);
      const node = this.node(number);
      if (node.kind === "part") found.add(this.resolved(node.part ?? 0)[1]);
      else if (node.kind === "case") look(this.evaluation().decided(node));
      else if (node.kind === "in reals") look(node.of[0] ?? 0);
      else node.of.forEach(look);
    };
    values.forEach(look);
    return [...found];
  }

  /** Needs, and the evaluation that their agreed values give. */
  #over(part: Part, values: readonly number[]) {
    const numbers = this.needed(part, values);
    return {
      needs: numbers.map((number) => this.quantity(number)),
      given: (agreed: readonly Bits[], terms?: Column): Evaluation => {
        const known = numbers.map((number, k): [number, Bits] => [number, agreed[k] ?? 0n]);
        return this.evaluation(terms, new Map(known));
      },
    };
  }

  /** A number of a part as bits: what is moved keeps its own, all else has the canonical NaN. */
  #bits(of: Dtype | "moved", value: Scalar): Bits {
    return of === "moved" ? BigInt(value) : bitsOf(of, value);
  }

  /** The name of a part, with the number of the term that it is. */
  nameOf(part: Part): string {
    return part.name.replace("[i]", this.term === undefined ? "[i]" : `[${this.term.toString()}]`);
  }

  *readFirst(part: Part, evaluation: Evaluation): Reading<void> {
    for (const node of part.reads) yield* evaluation.value(node);
  }

  #local(part: Of<"local">): Quantity {
    const { needs, given } = this.#over(part, [part.value]);
    return {
      kind: "local",
      dtype: this.dtype(part.dtype),
      name: this.nameOf(part),
      needs,
      value: (agreed) => refusing(this.#formula(part, given(agreed))),
    };
  }

  *#formula(part: Of<"local">, evaluation: Evaluation): Reading<Bits> {
    yield* this.readFirst(part, evaluation);
    return this.#bits(part.dtype, yield* evaluation.single(part.value));
  }

  /** A local over a sum that another contract makes in its own way. */
  localOver(part: Of<"local">, sum: number, value: Bits): Reading<Bits> {
    return this.#formula(part, this.evaluation(undefined, new Map([[sum, value]])));
  }

  #tree(part: Of<"tree">): Quantity {
    const { needs, given } = this.#over(part, [part.value]);
    const dtype = this.dtype(part.dtype);
    return {
      kind: "tree",
      dtype,
      name: this.nameOf(part),
      needs,
      count: this.count(part.count),
      terms: (first, last, agreed) =>
        refusing(this.#summands(part, given(agreed, range(first, last)))),
    };
  }

  *#summands(part: Of<"tree">, evaluation: Evaluation): Reading<Bits[]> {
    yield* this.readFirst(part, evaluation);
    const dtype = this.dtype(part.dtype);
    return (yield* evaluation.each(part.value)).map((x) => bitsOf(dtype, x));
  }

  /** The terms first to last − 1 of a tree that needs nothing. */
  summands(part: Of<"tree">, first: number, last: number): Reading<Bits[]> {
    return this.#summands(part, this.evaluation(range(first, last)));
  }

  #extremum(part: Of<"extremum">): Extremum {
    const { needs, given } = this.#over(part, [part.value]);
    const dtype = this.node(part.value).dtype;
    if (dtype !== "f32" && dtype !== "i64") throw new Error(`no order of ${dtype}`);
    const elements = function* (numbers: readonly number[], agreed: readonly Bits[]) {
      const found = yield* given(agreed, numbers.map(BigInt)).each(part.value);
      return found.map((x) => bitsOf(dtype, x));
    };
    return {
      kind: "extremum",
      dtype: this.dtype(part.dtype),
      name: this.nameOf(part),
      needs,
      extreme: part.extreme,
      of: dtype,
      count: this.count(part.count),
      elements: (numbers, agreed) => refusing(elements(numbers, agreed)),
    };
  }

  /** What a chain of stretches has in common (OPENING 7.5.1): the kept terms, then their values. */
  #stretches(part: Of<"chain" | "latest">) {
    const { kept } = part;
    const values = [part.start, ...(kept === undefined ? [] : [kept]), part.value];
    const { needs, given } = this.#over(part, values);
    const chosen = function* (index: readonly bigint[], evaluation: Evaluation): Reading<number[]> {
      const all = [...index.keys()];
      if (kept === undefined) return all;
      const holds = yield* evaluation.each(kept);
      return all.filter((term) => isSet(holds[term] ?? 0));
    };
    return { needs, given, chosen };
  }

  /** A sum from a start, that of `aten.index_add` being read at link 0 (OPENING 7.5.3). */
  #chain(part: Of<"chain">): Quantity {
    const { needs, given, chosen } = this.#stretches(part);
    const count = this.count(part.count);
    const start = this.node(part.start);
    const isRead = start.kind === "read";
    if (isRead && count === 0) return this.#startAlone(part, start);
    const links = function* (low: number, high: number, state: Bits, agreed: readonly Bits[]) {
      const index = range(low, high);
      const evaluation = given(agreed, index);
      const from =
        isRead && low === 0 ? yield* evaluation.single(part.start) : numberOf("f32", state);
      const own = yield* chosen(index, evaluation);
      const added = own.length === 0 ? [] : yield* evaluation.among(own).each(part.value);
      const sum = added.reduce<number>((total, x) => add32(total, Number(x)), Number(from));
      return bitsOf("f32", sum);
    };
    return {
      kind: "chain",
      dtype: "f32",
      name: this.nameOf(part),
      needs,
      count,
      stretch: STRETCH,
      weight: 1,
      start: isRead ? 0n : bitsOf("f32", this.#constant(part.start)),
      links: (low, high, state, agreed) => refusing(links(low, high, state, agreed)),
    };
  }

  /** OPENING 6.3: where nothing is added, the element of the operand that the sum begins with. */
  #startAlone(part: Of<"chain">, start: Node): Quantity {
    const read = function* (this: Opened): Reading<Bits> {
      return bitsOf("f32", yield* this.evaluation().single(part.start));
    };
    const name = start.name ?? "";
    return { kind: "local", dtype: "f32", name, needs: [], value: () => refusing(read.call(this)) };
  }

  #constant(node: number): Scalar {
    const step = this.evaluation().single(node).next();
    if (step.done !== true) throw new Error("a start that is read");
    return step.value;
  }

  /** `aten.scatter.src`: link 0 has the start, link i > 0 the source i − 1 (OPENING 7.2.3). */
  #latest(part: Of<"latest">): Chain {
    const { needs, given, chosen } = this.#stretches(part);
    const links = function* (
      this: Opened,
      low: number,
      high: number,
      state: Bits,
      agreed: readonly Bits[],
    ): Reading<Bits> {
      const index = range(Math.max(low, 1) - 1, high - 1);
      const evaluation = given(agreed, index);
      const bits = (value: Scalar): Bits => this.#bits(part.dtype, value);
      const from = low === 0 ? bits(yield* evaluation.single(part.start)) : state;
      const last = (yield* chosen(index, evaluation)).at(-1);
      if (last === undefined) return from;
      return bits((yield* evaluation.among([last]).each(part.value))[0] ?? 0);
    };
    return {
      kind: "chain",
      dtype: this.dtype(part.dtype),
      name: this.nameOf(part),
      needs,
      count: 1 + this.count(part.count),
      stretch: STRETCH,
      weight: 1,
      start: 0n,
      links: (low, high, state, agreed) => refusing(links.call(this, low, high, state, agreed)),
    };
  }

  /** A sum of quantities, term i being the part for element i. */
  #terms(part: Of<"terms">): Quantity {
    const { call, parts, output } = this;
    const term = (number: number): Quantity => {
      const own = BigInt(number);
      return new Opened(call, parts, output, own, own).quantity(part.of);
    };
    const dtype = this.dtype(part.dtype);
    const count = this.count(part.count);
    return { kind: "terms", dtype, name: this.nameOf(part), needs: [], count, term };
  }

  /** NUMERICS 10.12: the values of the operands are needs. */
  #fold(part: Of<"fold">): Quantity {
    const { call, parts, output, element } = this;
    const needs = range(0, this.count(part.count)).map((term) =>
      new Opened(call, parts, output, element, term).quantity(part.of),
    );
    const value = function* (this: Opened, agreed: readonly Bits[]): Reading<Bits> {
      const divisor = Number(yield* this.evaluation().single(part.divisor));
      const sum = halved(agreed.map((bits) => Number(numberOf("f32", bits))));
      return bitsOf("f32", div32(sum, divisor));
    };
    return {
      kind: "local",
      dtype: "f32",
      name: this.nameOf(part),
      needs,
      value: (agreed) => refusing(value.call(this, agreed)),
    };
  }

  /** The factors of some terms of a DOT: one factor's reads for all terms, then the other's. */
  *factors(
    part: Of<"dot">,
    first: number,
    last: number,
  ): Reading<readonly [readonly number[], readonly number[]]> {
    const evaluation = this.evaluation(range(first, last));
    yield* this.readFirst(part, evaluation);
    const [left, right] = part.factors;
    const a = (yield* evaluation.each(left.value)).map(Number);
    const b = (yield* evaluation.each(right.value)).map(Number);
    return [a, b];
  }

  /** A DOT (NUMERICS 2.1, 2.2): the first chunk's partial initialises the total. */
  dot(part: Of<"dot">): Quantity {
    const terms = this.count(part.count);
    const links = function* (this: Opened, low: number, high: number, state: Bits): Reading<Bits> {
      let total = Number(numberOf("f32", state));
      for (let link = low; link < high; link++) {
        const last = Math.min(CHUNK * (link + 1), terms);
        const [a, b] = yield* this.factors(part, CHUNK * link, last);
        const partial = a.reduce((sum, x, k) => fma32(x, b[k] ?? 0, sum), 0);
        total = link === 0 ? partial : add32(total, partial);
      }
      return bitsOf("f32", total);
    };
    return {
      kind: "chain",
      dtype: "f32",
      name: this.nameOf(part),
      needs: [],
      count: Math.ceil(terms / CHUNK),
      stretch: 1,
      weight: CHUNK,
      start: 0n,
      links: (low, high, state) => refusing(links.call(this, low, high, state)),
    };
  }
}

/** The numbers first to last − 1. */
export const range = (first: number, last: number): bigint[] =>
  Array.from({ length: Math.max(0, last - first) }, (_, k) => BigInt(first + k));

/** S of NUMERICS 10.12: the left part is the largest power of two below their number. */
function halved(xs: readonly number[]): number {
  if (xs.length <= 1) return xs[0] ?? 0;
  let left = 1;
  while (2 * left < xs.length) left *= 2;
  return add32(halved(xs.slice(0, left)), halved(xs.slice(left)));
}

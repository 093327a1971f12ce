/**
 * Evaluates nodes of a graph for one element, and for some of its terms together.
 *
 * A node's value is a *column*: one number, or one for each term. Nodes that do not depend on the
 * term are computed once. Elements are read where a node first needs them, for all terms together
 * (OPENING 7.0.1), each part of a node in its order.
 */
import { bitsOf, numberOf, type Bits, type Dtype, type Scalar } from "../numbers/bits.ts";
import { randomWord } from "../numbers/philox.ts";
import { Pair } from "../numbers/pairs.ts";
import { roundToF32 } from "../numbers/rounding.ts";
import { floatOfText, holds, type Attribute } from "./attributes.ts";
import { RefusedByClause, type Call, type Operands, type Reading } from "./call.ts";
import * as place from "./positions.ts";
import { isSet, primitive } from "./primitives.ts";
import { realPrimitive } from "./reals.ts";
import type { Node, NodeDtype } from "./table.ts";
import { numbersOf, permuted, reducedPlace, wordOf, type Place } from "./words.ts";

/** A number; in the real numbers what an operation gives is a pair (OPENING 10). */
export type Value = Scalar | Pair;

/** One number, or one for each term. Elements that are moved are bits. */
export type Column = Value | readonly Value[];

const isMany = (column: Column): column is readonly Value[] => Array.isArray(column);

/** A number that is no pair. */
function scalar(value: Value): Scalar {
  if (value instanceof Pair) throw new Error("a pair where a number is");
  return value;
}

const whole = (value: Value): bigint => BigInt(scalar(value));

/** A number as a pair, its bound being 0 (OPENING 10.1). */
export const pairOf = (value: Value): Pair =>
  value instanceof Pair ? value : new Pair(Number(value));

/** The number of a term. */
const at = (column: Column, term: number): Value => {
  if (!isMany(column)) return column;
  const found = column[term];
  if (found === undefined) throw new Error(`no term ${term}`);
  return found;
};

/** What a graph is evaluated for. */
export interface Scene {
  readonly call: Call;
  readonly operands: Operands;
  /** The type of the output in question: its number of those that exist. */
  readonly output: number;
  readonly nodes: readonly Node[];
  readonly element: bigint;
  /** The numbers of the terms; one of them stands for all that is said of it. */
  readonly terms: Column;
  /** The agreed value of a part. */
  readonly part: (number: number) => Bits | Pair;
  /** The graph is evaluated in the real numbers (OPENING 9.3). */
  readonly reals?: boolean;
  /** Elements of a form that were read before, by operand. */
  readonly elements?: ReadonlyMap<string, Bits>;
}

export class Evaluation {
  readonly #known = new Map<number, Column>();
  readonly #shape: place.Shape;
  readonly #place: Place;

  /** `chosen` of an evaluation of some of another's terms: which ones. */
  constructor(
    readonly scene: Scene,
    readonly from?: { readonly evaluation: Evaluation; readonly chosen: readonly number[] },
  ) {
    this.#shape = place.shapeOf(this.#output.shape);
    const { call, operands, element } = scene;
    this.#place = { call, operands, element, output: this.#shape };
  }

  get #output(): { dtype: Dtype; shape: readonly number[] } {
    const found = this.scene.call.outputs[this.scene.output];
    if (found === undefined) throw new Error(`no output ${this.scene.output}`);
    return found;
  }

  /** The dtype of a node's numbers. */
  dtypeOf(dtype: NodeDtype): Dtype {
    return dtype === "moved" ? this.#output.dtype : dtype === "index" ? "i64" : dtype;
  }

  /** The same of some of the terms: what is known already is not read again. */
  among(chosen: readonly number[]): Evaluation {
    const { terms } = this.scene;
    const own = isMany(terms) ? chosen.map((term) => at(terms, term)) : terms;
    return new Evaluation({ ...this.scene, terms: own }, { evaluation: this, chosen });
  }

  /** The value of a node. */
  *value(number: number): Reading<Column> {
    const known = this.#recalled(number);
    if (known !== undefined) return known;
    const node = this.scene.nodes[number];
    if (node === undefined) throw new Error(`no node ${number}`);
    const found = yield* this.#computed(node);
    this.#known.set(number, found);
    return found;
  }

  #recalled(number: number): Column | undefined {
    const known = this.#known.get(number);
    if (known !== undefined || this.from === undefined) return known;
    const { evaluation, chosen } = this.from;
    const found = evaluation.#recalled(number);
    return found !== undefined && isMany(found) ? chosen.map((term) => at(found, term)) : found;
  }

  /** A node's one number. */
  *single(number: number): Reading<Scalar> {
    return scalar(at(yield* this.value(number), 0));
  }

  /** A node's number of each term. */
  *each(number: number): Reading<readonly Scalar[]> {
    return (yield* this.#spread(number)).map(scalar);
  }

  /** A node's one pair. */
  *pair(number: number): Reading<Pair> {
    return pairOf(at(yield* this.value(number), 0));
  }

  /** A node's pair of each term. */
  *pairs(number: number): Reading<readonly Pair[]> {
    return (yield* this.#spread(number)).map(pairOf);
  }

  *#spread(number: number): Reading<readonly Value[]> {
    const found = yield* this.value(number);
    if (isMany(found)) return found;
    const { terms } = this.scene;
    return (isMany(terms) ? terms : [0]).map(() => found);
  }

  *#computed(node: Node): Reading<Column> {
    switch (node.kind) {
      case "case":
        return yield* this.value(this.decided(node));
      case "in reals":
        return yield* this.value(part(node, this.scene.reals === true ? 1 : 0));
      case "choice":
        return yield* this.#choice(node);
      case "operand":
        return this.#number(node, this.scene.elements?.get(named(node)));
      case "part": {
        const bits = this.scene.part(node.part ?? 0);
        if (bits instanceof Pair) return bits;
        return node.dtype === "moved" ? bits : numberOf(this.dtypeOf(node.dtype), bits);
      }
      case "attribute":
        return this.#attribute(node);
      case "constant":
        return this.#constant(node);
      case "size": {
        const count = place.product(place.shapeOf(this.scene.operands.type(named(node)).shape));
        // RN32 of a count is the count in the real numbers (OPENING 9.3.1).
        return this.scene.reals === true ? Number(count) : roundToF32(count, 0);
      }
      case "read":
        return yield* this.#read(node);
      case "joined":
        return yield* this.#joined(node);
      case "word":
        return yield* this.#word(node);
      case "element":
        return this.scene.element;
      case "term":
        return this.scene.terms;
      case "reduced place":
        return mapped([this.scene.terms], (term) => reducedPlace(whole(term), this.#place));
      case "permuted": {
        const axes = this.scene.nodes[part(node, 0)];
        const dims = numbersOf(this.#given(axes === undefined ? "" : named(axes)));
        return permuted(node, dims, this.#place);
      }
    }
    const of: Column[] = [];
    for (const number of node.of) of.push(yield* this.value(number));
    return mapped(of, (...numbers) => this.#combined(node, numbers));
  }

  /** The number of the node that a case has. */
  decided(node: Node): number {
    if (node.condition === undefined) throw new Error("a case without a condition");
    const { call, operands } = this.scene;
    return part(node, holds(node.condition, call.attributes, operands.names) ? 0 : 1);
  }

  #number(node: Node, bits: Bits | undefined): Value {
    if (bits === undefined) throw new Error(`no element of ${named(node)}`);
    return this.#element(node.dtype, bits);
  }

  /** An element that is read: as it is where it is moved. */
  #element(dtype: NodeDtype, bits: Bits): Value {
    return dtype === "moved" ? bits : numberOf(this.dtypeOf(dtype), bits);
  }

  #given(name: string): Attribute {
    const found = this.scene.call.attributes.get(name);
    if (found === undefined) throw new Error(`no attribute ${name}`);
    return found;
  }

  /** NUMERICS 1.9, 9.2, 10.1: an attribute as a number of a dtype. */
  #attribute(node: Node): Scalar {
    const held = this.#given(named(node));
    if (typeof held === "object" || typeof held === "string") throw new Error("no number");
    if (node.dtype === "index") return BigInt(held);
    const dtype = this.dtypeOf(node.dtype);
    const number = asNumberOf(dtype, held);
    return node.dtype === "moved" ? bitsOf(dtype, number) : number;
  }

  #constant(node: Node): Scalar {
    const real = this.scene.reals === true ? node.real : undefined;
    if (real !== undefined) return floatOfText(real) ?? NaN;
    const { number } = node;
    if (number === undefined) throw new Error("a constant without a number");
    const held = typeof number === "string" ? floatOfText(number) : number;
    if (held === undefined) throw new Error(`no number: ${String(number)}`);
    if (node.dtype === "index") return BigInt(held);
    const dtype = this.dtypeOf(node.dtype);
    return node.dtype === "moved" ? bitsOf(dtype, Number(held)) : asNumberOf(dtype, held);
  }

  *#choice(node: Node): Reading<Column> {
    const where = yield* this.value(part(node, 0));
    if (!isMany(where)) return yield* this.value(part(node, isSet(scalar(where)) ? 1 : 2));
    const found = new Array<Value>(where.length);
    for (const [number, wanted] of [
      [1, true],
      [2, false],
    ] as const) {
      const chosen = [...where.keys()].filter((term) => isSet(scalar(at(where, term))) === wanted);
      if (chosen.length === 0) continue;
      const values = yield* this.among(chosen).value(part(node, number));
      chosen.forEach((term, k) => {
        found[term] = at(values, k);
      });
    }
    return found;
  }

  *#read(node: Node): Reading<Column> {
    const position = yield* this.value(part(node, 0));
    const first = this.scene.operands.number(named(node));
    const second = node.of[1];
    const more = second === undefined ? 0n : yield* this.value(second);
    return yield* this.elementsAt(
      node.dtype,
      mapped([more], (x) => BigInt(first) + whole(x)),
      position,
    );
  }

  /** The elements of an operand at positions: one read, or one an operand where they are several. */
  *elementsAt(dtype: NodeDtype, operand: Column, position: Column): Reading<Column> {
    const number = (bits: Bits): Value => this.#element(dtype, bits);
    if (!isMany(operand)) {
      const positions = isMany(position) ? position : [position];
      const bits = yield { operand: Number(operand), positions: positions.map(whole) };
      const found = bits.map(number);
      return isMany(position) ? found : at(found, 0);
    }
    const found: Value[] = [];
    for (const [term, own] of operand.entries()) {
      const one = yield* this.elementsAt(dtype, own, at(position, term));
      found.push(at(one, 0));
    }
    return found;
  }

  /** The element of `x*`, one after the other along an axis (OPENING 7.2.1, `aten.cat`). */
  *#joined(node: Node): Reading<Column> {
    const dim = BigInt(yield* this.single(part(node, 0)));
    const axis = place.axisOf(dim, this.#shape);
    const here = place.coordinates(this.scene.element, this.#shape);
    const first = this.scene.operands.number(named(node));
    let rest = here[axis] ?? 0n;
    for (const [number, type] of this.scene.call.operands.entries()) {
      if (number < first || type === null) continue;
      const shape = place.shapeOf(type.shape);
      const own = place.size(shape, axis);
      if (rest < own) {
        here[axis] = rest;
        return yield* this.elementsAt(node.dtype, BigInt(number), place.flat(here, shape));
      }
      rest -= own;
    }
    throw new Error("an element of no operand");
  }

  /**
   * A Philox word: the seed and the step are one read (OPENING 7.10.1), refused by NUMERICS 8.3.
   * What the block follows from is read, and refused, before them (7.10.2).
   */
  *#word(node: Node): Reading<Column> {
    const of: Column[] = [];
    for (const number of node.of) of.push(yield* this.value(number));
    const operand = this.scene.operands.number(named(node));
    const bits = yield { operand, positions: [0n, 1n] };
    const [seed = 0n, step = 0n] = bits.map((one) => BigInt.asIntN(64, one));
    if (seed < 0n || step < 0n || step >= 1n << 32n) {
      throw new RefusedByClause("the seed or the step is out of range");
    }
    return mapped(of, (draw = 0, block = 0, number = 0) =>
      randomWord(seed, step, whole(draw), whole(block), whole(number)),
    );
  }

  #combined(node: Node, of: readonly Value[]): Value {
    const isReal = node.dtype === "f32" || node.dtype === "f64" || node.dtype === "bool";
    if (this.scene.reals === true && isReal) return realPrimitive(node.kind, node.dtype, of);
    const numbers = of.map(scalar);
    const found = node.dtype === "index" ? wordOf(node, numbers, this.#place) : undefined;
    return found ?? primitive(node.kind, node.dtype, numbers);
  }
}

/** The number of a node's part. */
function part(node: Node, number: number): number {
  const found = node.of[number];
  if (found === undefined) throw new Error(`${node.kind} has no part ${number}`);
  return found;
}

function named(node: Node): string {
  if (node.name === undefined) throw new Error(`${node.kind} has no name`);
  return node.name;
}

/** A number as one of a dtype: RN32 of a float, a whole number of an integer (NUMERICS 1.9). */
function asNumberOf(dtype: Dtype, held: number | bigint | boolean): Scalar {
  switch (dtype) {
    case "f32":
      return Math.fround(Number(held));
    case "f64":
      return Number(held);
    case "i64":
      return BigInt(held);
    default:
      return Number(held);
  }
}

/** A function of columns: of one number each, or term by term. */
function mapped(of: readonly Column[], on: (...numbers: Value[]) => Value): Column {
  const many = of.find(isMany);
  if (many === undefined) return on(...(of as readonly Value[]));
  return many.map((_, term) => on(...of.map((column) => at(column, term))));
}

/** The words of the table for places, sizes and counts (vectors/operators.md: Nodes, `index`). */
import type { Scalar } from "../numbers/bits.ts";
import type { Attribute } from "./attributes.ts";
import { RefusedByClause, type Call, type Operands } from "./call.ts";
import * as place from "./positions.ts";
import type { Node } from "./table.ts";

/** Of which element of which call a word is asked. */
export interface Place {
  readonly call: Call;
  readonly operands: Operands;
  /** The shape of the output in question, and the element's position there. */
  readonly output: place.Shape;
  readonly element: bigint;
}

/** The numbers of an attribute; a single one is a list of one. */
export function numbersOf(held: Attribute | undefined): readonly bigint[] {
  if (typeof held === "bigint") return [held];
  if (held === undefined || typeof held !== "object") throw new Error("no whole numbers");
  return held.map(BigInt);
}

/** The whole number of a word from those of its parts; undefined of what is no such word. */
export function wordOf(node: Node, of: readonly Scalar[], here: Place): bigint | undefined {
  const [a = 0n, b = 0n] = node.of.length > 0 ? of.map((x) => BigInt(x)) : [];
  const { call, operands, output, element } = here;
  const name = node.name ?? "";
  const shape = (): place.Shape =>
    node.name === undefined ? output : place.shapeOf(operands.type(name).shape);
  const attribute = (): readonly bigint[] => numbersOf(call.attributes.get(name));
  switch (node.kind) {
    case "axis":
      return attribute()[0];
    case "extent":
      return place.size(place.withAxis(shape()), place.axisOf(a, shape()));
    case "inner":
      return place.inner(shape(), place.axisOf(a, shape()));
    case "numel":
      return place.product(shape());
    case "given":
      return BigInt(call.operands.length - operands.number(name));
    case "product":
      return place.product(attribute());
    case "entry": {
      const held = attribute();
      return held[Math.min(Number(a), held.length - 1)];
    }
    case "reduced": {
      const of = firstShape(here);
      return place.product(axesOf(here).map((axis) => place.size(of, axis)));
    }
    case "inside":
      if (a < 0n || a >= b) throw new RefusedByClause(`${name} is outside`);
      return a;
    case "broadcast":
      return place.broadcast(element, output, shape());
    case "placed": {
      const axis = place.axisOf(a, shape());
      const at = place.coordinates(element, output);
      return place.flat(with_(at, axis, b), place.withAxis(shape()));
    }
    case "reaches": {
      const axis = place.axisOf(a, shape());
      const at = place.coordinates(element, output);
      return shape().every((own, other) => other === axis || (at[other] ?? 0n) < own) ? 1n : 0n;
    }
  }
  return undefined;
}

const with_ = (at: readonly bigint[], axis: number, value: bigint): bigint[] => {
  const found = [...at];
  found[axis] = value;
  return found;
};

function firstShape({ operands }: Place): place.Shape {
  const { first } = operands;
  if (first === undefined) throw new Error("nothing to reduce");
  return place.shapeOf(first.shape);
}

/** The axes that the attribute `dim` reduces: all where there is none (OPENING 7.4.1). */
function axesOf(here: Place): number[] {
  const held = here.call.attributes.get("dim");
  return place.reducedAxes(held === undefined ? [] : numbersOf(held), firstShape(here).length);
}

/** `reduced place`: the position of number `term` of the elements that are reduced. */
export const reducedPlace = (term: bigint, here: Place): bigint =>
  place.reducedPlace(here.element, term, firstShape(here), axesOf(here));

/** `permuted`: the position before the axes were permuted (OPENING 7.2.1). */
export function permuted(node: Node, dims: readonly bigint[], here: Place): bigint {
  const shape = place.shapeOf(here.operands.type(node.name ?? "").shape);
  const at = place.coordinates(here.element, here.output);
  const before = shape.map(() => 0n);
  dims.forEach((dim, axis) => {
    before[Number(dim)] = at[axis] ?? 0n;
  });
  return place.flat(before, shape);
}

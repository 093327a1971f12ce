/** Row-major positions (OPENING 1.9), in whole numbers of any size. */
import { floorDiv, floorMod } from "../numbers/whole.ts";

export type Shape = readonly bigint[];

export const shapeOf = (sizes: readonly number[]): Shape => sizes.map(BigInt);

/** The product of sizes; of none it is 1. */
export const product = (sizes: readonly bigint[]): bigint => sizes.reduce((a, b) => a * b, 1n);

/** The shape, a tensor of no axes having one of size 1 (NUMERICS 3.3). */
export const withAxis = (shape: Shape): Shape => (shape.length === 0 ? [1n] : shape);

/** A size of a shape; axes are numbered from 0. */
export function size(shape: Shape, axis: number): bigint {
  const found = shape[axis];
  if (found === undefined) throw new Error(`no axis ${axis}`);
  return found;
}

/** The axis that a `dim` names: below 0 it counts from the end (OPENING 1.10). */
export function axisOf(dim: bigint, shape: Shape): number {
  return Number(floorMod(dim, BigInt(withAxis(shape).length)));
}

/** The product of the sizes after an axis. */
export const inner = (shape: Shape, axis: number): bigint =>
  product(withAxis(shape).slice(axis + 1));

/** at(f, S): the coordinates of a position, the last axis fastest. */
export function coordinates(position: bigint, shape: Shape): bigint[] {
  const found = new Array<bigint>(shape.length);
  let rest = position;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const own = size(shape, axis);
    found[axis] = own === 0n ? 0n : floorMod(rest, own);
    rest = own === 0n ? 0n : floorDiv(rest, own);
  }
  return found;
}

/** flat(c, S): the position of coordinates. */
export const flat = (at: readonly bigint[], shape: Shape): bigint =>
  shape.reduce((position, own, axis) => position * own + (at[axis] ?? 0n), 0n);

/** bcast(f, O, S): the position in S that goes to position f of O. */
export function broadcast(position: bigint, of: Shape, shape: Shape): bigint {
  const at = coordinates(position, of).slice(of.length - shape.length);
  return flat(
    at.map((c, axis) => (size(shape, axis) === 1n ? 0n : c)),
    shape,
  );
}

/** The axes that a reduction reduces, ascending (NUMERICS 3.3): all where none is named. */
export function reducedAxes(dims: readonly bigint[], rank: number): number[] {
  const all = Array.from({ length: rank }, (_, axis) => axis);
  if (dims.length === 0) return all;
  const named = new Set(dims.map((dim) => Number(floorMod(dim, BigInt(Math.max(rank, 1))))));
  return all.filter((axis) => named.has(axis));
}

/** Position number `term` of those that are reduced to position `element` (OPENING 7.4.1). */
export function reducedPlace(
  element: bigint,
  term: bigint,
  shape: Shape,
  axes: readonly number[],
): bigint {
  const others = shape.map((_, axis) => axis).filter((axis) => !axes.includes(axis));
  const at = shape.map(() => 0n);
  const place = (position: bigint, own: readonly number[]): void => {
    const sizes = own.map((axis) => size(shape, axis));
    coordinates(position, sizes).forEach((c, k) => {
      at[own[k] ?? 0] = c;
    });
  };
  place(element, others);
  place(term, axes);
  return flat(at, shape);
}

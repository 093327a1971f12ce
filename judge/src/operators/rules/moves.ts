/** Data movement and rows that an index names (NUMERICS 16.4, 16.6). */
import { exactly } from "../../numbers/rounding.ts";
import { floorDiv } from "../../numbers/whole.ts";
import { broadcast, product, same, textOf, withSize, type Node, type Rule, type Shape } from "./node.ts"; // prettier-ignore

function permute(node: Node): readonly Shape[] {
  const x = node.shape("x");
  const dims = node.ints("dims");
  const isEach = x.every((_, k) => dims.includes(BigInt(k)));
  if (dims.length !== x.length || !isEach) throw node.no("has dims that are not each axis once");
  return [dims.map((axis) => x[Number(axis)] ?? 0n)];
}

function expand(node: Node): readonly Shape[] {
  const [x, size] = [node.shape("x"), node.ints("size")];
  const front = size.length - x.length;
  if (front < 0 || x.some((one, k) => one !== 1n && one !== size[front + k])) {
    throw node.no(`takes ${textOf(x)} to ${textOf(size)}, which it does not expand to`);
  }
  return [size];
}

/** The shapes of x, and of the slice of it. */
function slice(node: Node): [Shape, Shape] {
  const x = node.axes("x", 1, Infinity);
  const axis = node.dim(x);
  const end = node.within("end", 0n, x[axis] ?? 0n);
  const start = node.within("start", 0n, end);
  const step = node.int("step");
  if (step < 1n) throw node.no("has a step below 1");
  return [x, withSize(x, axis, -floorDiv(start - end, step))];
}

function cat(node: Node): readonly Shape[] {
  const x = node.axes("x", 1, Infinity);
  const axis = node.dim(x);
  let sum = 0n;
  for (const shape of node.shapes) {
    if (shape === null) continue;
    if (!same(withSize(shape, axis, 0n), withSize(x, axis, 0n))) {
      throw node.no(`joins ${textOf(x)} and ${textOf(shape)}`);
    }
    sum += shape[axis] ?? 0n;
  }
  return [withSize(x, axis, sum)];
}

/** The shapes of x, and of an index that is nowhere longer than x but along dim. */
function indexed(node: Node): [Shape, Shape] {
  const [x, index] = [node.shape("x"), node.shape("index")];
  const axis = node.dim(x);
  const isLonger = index.some((size, k) => k !== axis && size > (x[k] ?? 0n));
  if (index.length !== x.length || isLonger) {
    throw node.no(`has an index of ${textOf(index)} into ${textOf(x)}`);
  }
  return [x, index];
}

/** NUMERICS 9.1: ⌈(end − start)/step⌉ of the exact binary64 numbers, if that is positive. */
function arange(node: Node): readonly Shape[] {
  const numbers = [node.float("start"), node.float("end"), node.float("step")];
  if (!numbers.every(Number.isFinite)) throw node.no("has a bound or step that is not finite");
  if (numbers[2] === 0) throw node.no("has a step of 0");
  const dyadics = numbers.map(exactly);
  const least = Math.min(...dyadics.map(({ q }) => q));
  const [start = 0n, end = 0n, step = 1n] = dyadics.map(({ n, q }) => n << BigInt(q - least));
  const count = -floorDiv(step < 0n ? end - start : start - end, step < 0n ? -step : step);
  return [[count > 0n ? count : 0n]];
}

function embeddingBackward(node: Node): readonly Shape[] {
  const grad = node.axes("grad", 1, Infinity);
  node.match("index", grad.slice(0, -1));
  const rows = node.int("num_weights");
  if (rows < 0n) throw node.no("has a negative num_weights");
  if (node.flag("scale_grad_by_freq")) throw node.no("scales by frequency, which no contract has");
  return [[rows, ...grad.slice(-1)]];
}

const triangle: Rule = (node) => [node.axes("x", 2, Infinity)];

export const MOVES: Readonly<Record<string, Rule>> = {
  "aten.view": (node) => {
    const [x, size] = [node.shape("x"), node.ints("size")];
    if (product(x) !== product(size)) {
      throw node.no(`views ${textOf(x)} as ${textOf(size)}, of another number of elements`);
    }
    return [size];
  },
  "aten.permute": permute,
  "aten.expand": expand,
  "aten.slice": (node) => [slice(node)[1]],
  "aten.slice_scatter": (node) => {
    const [x, part] = slice(node);
    node.match("source", part);
    return [x];
  },
  "aten.cat": cat,
  "aten.embedding": (node) => [[...node.shape("index"), ...node.axes("weight", 2).slice(1)]],
  "aten.embedding_dense_backward": embeddingBackward,
  "aten.gather": (node) => [indexed(node)[1]],
  "aten.index_select": (node) => {
    const x = node.axes("x", 1, Infinity);
    const [count = 0n] = node.axes("index", 1);
    return [withSize(x, node.dim(x), count)];
  },
  "aten.scatter.src": (node) => {
    const [x, index] = indexed(node);
    node.match("source", index);
    return [x];
  },
  "aten.where": (node) => [
    broadcast(node, node.shape("condition"), node.shape("a"), node.shape("b")),
  ],
  "aten.masked_fill": (node) => {
    const x = node.shape("x");
    if (!same(broadcast(node, x, node.shape("mask")), x)) throw node.no("has a mask larger than x");
    return [x];
  },
  "aten.full": (node) => [node.ints("size")],
  "aten.arange": arange,
  "aten.tril": triangle,
  "aten.triu": triangle,
};

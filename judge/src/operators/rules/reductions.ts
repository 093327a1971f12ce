/** Reductions (NUMERICS 16.3), and what goes along one axis. */
import { product, withSize, type Node, type Rule, type Shape } from "./node.ts";

/** The shape that is left when these axes are reduced (NUMERICS 3.3). */
function reduced(node: Node, x: Shape, numbers: readonly bigint[], refusesEmpty = false): Shape {
  const axes = new Set(numbers.map((number) => node.axis(x, number)));
  if (axes.size !== numbers.length) throw node.no("has an axis twice");
  const isReduced = (k: number): boolean => axes.size === 0 || axes.has(k);
  const kept = x.filter((_, k) => !isReduced(k));
  const isEmpty = product(x.filter((_, k) => isReduced(k))) === 0n;
  if (refusesEmpty && isEmpty && product(kept) !== 0n) throw node.no("reduces an empty axis");
  return node.flag("keepdim") ? x.map((size, k) => (isReduced(k) ? 1n : size)) : kept;
}

const all: Rule = () => [[]];
const list: Rule = (node) => [reduced(node, node.shape("x"), node.ints("dim"))];
const extreme: Rule = (node) => [reduced(node, node.shape("x"), node.ints("dim"), true)];

function notEmpty(node: Node): readonly Shape[] {
  if (product(node.shape("x")) === 0n) throw node.no("has no elements");
  return [[]];
}

/** The shape of the first operand, which has the axis `dim`; a second operand has it too. */
const along =
  (first: string, second?: string): Rule =>
  (node) => {
    const shape = node.shape(first);
    node.dim(shape);
    if (second !== undefined) node.match(second, shape);
    return [shape];
  };

export const REDUCTIONS: Readonly<Record<string, Rule>> = {
  "aten.sum": all,
  "aten.sum.dim_IntList": list,
  "aten.mean": all,
  "aten.mean.dim": list,
  "aten.amax": extreme,
  "aten.amin": extreme,
  "aten.max": notEmpty,
  "aten.min": notEmpty,
  "aten.argmax": (node) => [reduced(node, node.shape("x"), [node.int("dim")], true)],
  "aten.cumsum": along("x"),
  "tallystick.rank": along("x"),
  "tallystick.occurrences": (node) => {
    node.axes("tokens", 1);
    const rows = node.axes("first", 1);
    node.match("last", rows);
    return [[...rows, node.within("classes", 0n, 2n ** 63n - 1n)]];
  },
  "aten.var_mean.correction": (node) => [...list(node), ...list(node)],
  "tallystick.sum_squares": all,
  "aten._softmax": along("x"),
  "aten._log_softmax": along("x"),
  "aten._softmax_backward_data": along("grad", "y"),
  "aten._log_softmax_backward_data": along("grad", "y"),
  "aten.index_add": (node) => {
    const x = node.axes("x", 1, Infinity);
    const [count = 0n] = node.axes("index", 1);
    node.match("source", withSize(x, node.dim(x), count));
    return [x];
  },
};

/** Random numbers, optimizers and the elementwise operators with rules of their own (16.5 to 16.8). */
import { broadcast, same, textOf, type Node, type Rule, type Shape } from "./node.ts";

function random(node: Node): readonly Shape[] {
  node.match("rng", [2n]);
  node.within("draw", 0n, 2n ** 32n - 1n);
  return [node.ints("shape")];
}

/** NUMERICS 8.8, 16.5. */
function noise(node: Node): readonly Shape[] {
  const [rows = 0n] = node.axes("place", 1);
  node.match("rng", [2n]);
  node.within("draw", 0n, 2n ** 32n - 1n);
  return [[rows, node.within("classes", 0n, 2n ** 32n - 1n)]];
}

/** The shape of p, which these operands have; the others have no axes. */
function parameter(node: Node, names: readonly string[]): Shape {
  const p = node.shape("p");
  for (const name of node.operator.operands) node.match(name, names.includes(name) ? p : []);
  return p;
}

const adam: Rule = (node) => {
  const p = parameter(node, ["p", "g", "m", "v"]);
  return [p, p, p];
};

function sgd(node: Node): readonly Shape[] {
  const p = parameter(node, ["p", "g", "buffer"]);
  const hasMomentum = node.float("momentum") !== 0;
  if (node.has("buffer") !== hasMomentum) {
    throw node.no(hasMomentum ? "has momentum and no buffer" : "has a buffer and no momentum");
  }
  return hasMomentum ? [p, p] : [p];
}

function fold(node: Node): readonly Shape[] {
  if (node.shapes.length > 256) throw node.no(`folds ${node.shapes.length} operands`);
  if (node.attributes.has("count")) {
    node.within("count", 1n, 65536n);
    if (!node.flag("mean")) throw node.no("has a count without mean");
  }
  return [alike(node)];
}

/** The one shape of all operands. */
function alike(node: Node): Shape {
  const [first = []] = node.shapes.filter((shape) => shape !== null);
  for (const shape of node.shapes) {
    if (shape !== null && !same(shape, first)) {
      throw node.no(`has shapes ${textOf(first)} and ${textOf(shape)}, not one`);
    }
  }
  return first;
}

const gelu: Rule = (node) => {
  node.word("approximate", ["none", "tanh"]);
  return [alike(node)];
};

export const OTHERS: Readonly<Record<string, Rule>> = {
  "tallystick.dropout_mask": (node) => {
    const p = node.float("p");
    if (!(p >= 0 && p < 1)) throw node.no("has p outside of 0 to 1, 1 excluded");
    return random(node);
  },
  "tallystick.uniform": random,
  "tallystick.normal": random,
  "tallystick.gumbel": noise,
  "aten.gelu": gelu,
  "aten.gelu_backward": gelu,
  "aten.clamp": (node) => {
    if (!node.attributes.has("min") && !node.attributes.has("max")) throw node.no("has no bound");
    return [alike(node)];
  },
  "tallystick.fold": fold,
  "tallystick.beta_power": (node) => {
    node.match("power", []);
    return [[]];
  },
  "tallystick.adam_step": adam,
  "tallystick.adamw_step": adam,
  "tallystick.sgd_step": sgd,
  "tallystick.clip_coef": (node) => {
    node.match("squares", []);
    return [alike(node), []];
  },
};

/** Other operators of one element of each operand: a and b broadcast, else there is one shape. */
export const elementwise: Rule = (node) =>
  node.operator.operands.join() === "a,b"
    ? [broadcast(node, node.shape("a"), node.shape("b"))]
    : [alike(node)];

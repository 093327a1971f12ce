/** Normalisation, pooling and losses (NUMERICS 16.4). */
import { floorDiv } from "../../numbers/whole.ts";
import { product, same, textOf, type Node, type Rule, type Shape } from "./node.ts";

interface LayerNorm {
  readonly x: Shape;
  readonly own: Shape;
  /** Of mean and rstd. */
  readonly rows: Shape;
}

function layerNorm(node: Node): LayerNorm {
  const x = node.shape("x");
  const own = node.ints("normalized_shape");
  const leading = x.length - own.length;
  if (own.length === 0 || !same(x.slice(leading), own)) {
    throw node.no(`has normalized_shape ${textOf(own)}, and x of ${textOf(x)}`);
  }
  node.match("weight", own);
  node.match("bias", own);
  return { x, own, rows: x.map((size, k) => (k < leading ? size : 1n)) };
}

/** x[N,C,…], and [C], which operands of channels have. */
function batchNorm(node: Node, channels: readonly string[]): [Shape, Shape] {
  const x = node.axes("x", 2, Infinity);
  const own = x.slice(1, 2);
  for (const name of channels) node.match(name, own);
  return [x, own];
}

const CHANNELS = ["weight", "bias", "running_mean", "running_var", "mean", "rstd"];

/** Whether both of two operands are there; refuses one alone. */
function both(node: Node, one: string, other: string): boolean {
  if (node.has(one) !== node.has(other)) throw node.no(`has not both of ${one} and ${other}`);
  return node.has(one);
}

function batchNormBackward(node: Node): readonly Shape[] {
  const [x, own] = batchNorm(node, CHANNELS);
  node.match("grad", x);
  const hasRunning = both(node, "running_mean", "running_var");
  const hasBatch = both(node, "mean", "rstd");
  const train = node.flag("train");
  if (hasBatch !== train || hasRunning === train) {
    throw node.no("has not the statistics that train asks for");
  }
  return [x, own, own];
}

const MOST = 65535n;

/** One axis of a pooling (NUMERICS 6.15). */
interface Window {
  readonly size: bigint;
  readonly kernel: bigint;
  readonly stride: bigint;
  readonly padding: bigint;
  readonly dilation: bigint;
}

function places({ size, kernel, stride, padding, dilation }: Window, ceil: boolean): bigint {
  const room = size + 2n * padding - dilation * (kernel - 1n) - 1n;
  const count = (ceil ? -floorDiv(-room, stride) : floorDiv(room, stride)) + 1n;
  return ceil && (count - 1n) * stride >= size + padding ? count - 1n : count;
}

/**
 * Whether each of the places has a tap inside of the axis. A place behind the axis is there only
 * where the padding is wider than the kernel, and then the first place misses the axis too.
 */
function allHaveTaps({ size, kernel, stride, padding, dilation }: Window, count: bigint): boolean {
  // Those that begin before the axis: at most `padding` places.
  for (
    let start = -padding;
    start < 0n && start <= (count - 1n) * stride - padding;
    start += stride
  ) {
    const steps = -floorDiv(start, dilation);
    if (steps >= kernel || start + steps * dilation >= size) return false;
  }
  return true;
}

function pooled(node: Node): readonly [x: Shape, outputs: Shape] {
  const x = node.axes("x", 3, 4);
  const kernel = node.pair("kernel_size", 1n, MOST);
  const stride = node.pair("stride", 1n, MOST);
  const padding = node.pair("padding", 0n, MOST);
  const dilation = node.pair("dilation", 1n, MOST);
  const windows = ([0, 1] as const).map((k) => ({
    size: x[x.length - 2 + k] ?? 0n,
    kernel: kernel[k],
    stride: stride[k],
    padding: padding[k],
    dilation: dilation[k],
  }));
  const counts = windows.map((window) => places(window, node.flag("ceil_mode")));
  if (counts.some((count) => count < 0n)) throw node.no("has a window larger than its input");
  const outputs = [...x.slice(0, -2), ...counts];
  const isMissed = windows.some((window, k) => !allHaveTaps(window, counts[k] ?? 0n));
  if (product(outputs) !== 0n && isMissed) throw node.no("has an output without a tap");
  return [x, outputs];
}

const REDUCTION = ["mean", "sum", "none"];

/** The shape of a loss over elements of this shape. */
const lossOf = (node: Node, each: Shape): Shape =>
  node.word("reduction", REDUCTION) === "none" ? each : [];

/** x[R,V] with a target for each row: [R,V] and [R]. */
function classes(node: Node): [Shape, Shape] {
  const x = node.axes("x", 2);
  const rows = x.slice(0, 1);
  if (x[1] === 0n) throw node.no("has no classes");
  node.match("target", rows);
  return [x, rows];
}

const squaredError = (node: Node): Shape => {
  const x = node.shape("x");
  node.match("y", x);
  return x;
};

export const LAYERS: Readonly<Record<string, Rule>> = {
  "aten.native_layer_norm": (node) => {
    const { x, rows } = layerNorm(node);
    return [x, rows, rows];
  },
  "aten.native_layer_norm_backward": (node) => {
    const { x, own, rows } = layerNorm(node);
    node.match("grad", x);
    node.match("mean", rows);
    node.match("rstd", rows);
    return [x, own, own];
  },
  "aten._native_batch_norm_legit_functional": (node) => {
    const [x, own] = batchNorm(node, CHANNELS);
    return both(node, "running_mean", "running_var") ? [x, own, own, own, own] : [x, own, own];
  },
  "aten.native_batch_norm_backward": batchNormBackward,
  "aten._native_batch_norm_legit_no_training": (node) => [batchNorm(node, CHANNELS)[0]],
  "aten.max_pool2d_with_indices": (node) => {
    const [, outputs] = pooled(node);
    return [outputs, outputs];
  },
  "aten.max_pool2d_with_indices_backward": (node) => {
    const [x, outputs] = pooled(node);
    node.match("grad", outputs);
    node.match("index", outputs);
    return [x];
  },
  "tallystick.cross_entropy": (node) => {
    const [, rows] = classes(node);
    return [lossOf(node, rows), rows, rows];
  },
  "tallystick.cross_entropy_backward": (node) => {
    const [x, rows] = classes(node);
    node.match("grad", lossOf(node, rows));
    node.match("row_max", rows);
    node.match("row_sum", rows);
    return [x];
  },
  "aten.nll_loss_forward": (node) => [lossOf(node, classes(node)[1]), []],
  "aten.nll_loss_backward": (node) => {
    const [x, rows] = classes(node);
    node.match("grad", lossOf(node, rows));
    node.match("total_weight", []);
    return [x];
  },
  "aten.mse_loss": (node) => [lossOf(node, squaredError(node))],
  "aten.mse_loss_backward": (node) => {
    const x = squaredError(node);
    node.match("grad", lossOf(node, x));
    return [x];
  },
};

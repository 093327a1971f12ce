/** Dot class and convolution (NUMERICS 16.2). */
import { floorDiv } from "../../numbers/whole.ts";
import { broadcast, same, type Node, type Rule, type Shape } from "./node.ts";

const sizesOf = (shape: Shape): [bigint, bigint] => [shape[0] ?? 1n, shape[1] ?? 1n];

/** [M,K] and [K,N], after the axes of a batch. */
function matrices(node: Node, batch: number): Shape {
  const a = node.axes("a", 2 + batch);
  const b = node.axes("b", 2 + batch);
  const [rows, inner] = sizesOf(a.slice(batch));
  const [count, columns] = sizesOf(b.slice(batch));
  if (inner !== count) throw node.no(`multiplies rows of ${inner} by columns of ${count}`);
  if (!same(a.slice(0, batch), b.slice(0, batch))) throw node.no("has two sizes of the batch");
  return [...a.slice(0, batch), rows, columns];
}

function addmm(node: Node): readonly Shape[] {
  const shape = matrices(node, 0);
  const c = node.axes("c", 0, 2);
  if (!same(broadcast(node, c, shape), shape)) throw node.no("has c larger than the product");
  return [shape];
}

const MOST = 2n ** 28n - 1n;

interface Convolution {
  readonly input: Shape;
  readonly weight: Shape;
  readonly output: Shape;
}

function convolution(node: Node): Convolution {
  const input = node.axes("x", 4);
  const weight = node.axes("weight", 4);
  if ([...input, ...weight].some((size) => size > MOST)) throw node.no(`has a size over ${MOST}`);
  const stride = node.pair("stride", 1n, MOST);
  const padding = node.pair("padding", 0n, MOST);
  const dilation = node.pair("dilation", 1n, MOST);
  node.pair("output_padding", 0n, 0n);
  if (node.flag("transposed")) throw node.no("is transposed, which no contract has");
  const groups = node.within("groups", 1n, MOST);
  const [images = 0n, channels = 0n] = input;
  const [outputs = 0n, own = 0n] = weight;
  if (channels % groups !== 0n || outputs % groups !== 0n || own !== channels / groups) {
    throw node.no(`has ${channels} and ${outputs} channels, a weight of ${own}, ${groups} groups`);
  }
  const places = ([0, 1] as const).map((k) => {
    const [size = 0n, kernel = 0n] = [input[2 + k], weight[2 + k]];
    const room = size + 2n * padding[k] - dilation[k] * (kernel - 1n) - 1n;
    if (kernel < 1n || room < 0n)
      throw node.no("has a kernel that is empty or larger than its input");
    return floorDiv(room, stride[k]) + 1n;
  });
  return { input, weight, output: [images, outputs, ...places] };
}

export const DOT: Readonly<Record<string, Rule>> = {
  "aten.mm": (node) => [matrices(node, 0)],
  "aten.bmm": (node) => [matrices(node, 1)],
  "aten.addmm": addmm,
  "aten.convolution": (node) => {
    const { weight, output } = convolution(node);
    node.match("bias", weight.slice(0, 1));
    return [output];
  },
  "aten.convolution_backward": (node) => {
    const { input, weight, output } = convolution(node);
    node.match("grad", output);
    return [input, weight, weight.slice(0, 1)];
  },
};

/** Elements that nothing goes into: sums of no terms, and what follows from them. */
import { expect, test } from "vitest";
import type { Attribute } from "../../src/operators/attributes.ts";
import { callOf, quantityOf, type Contract } from "../../src/operators/element.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail, hexOf, valueOf, type Tensor } from "./calls.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
const CONTRACTS: Contract[] = [
  { family: "ordered" },
  { family: "rounded", B: 27 },
  { family: "bounded", B: 27 },
  { family: "exact", B: 22 },
];

/** A tensor of ones. */
const ones = (...shape: number[]): Tensor => ({
  dtype: "f32",
  shape,
  elements: Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => 0x3f800000n),
});
const indices: Tensor = { dtype: "i64", shape: [0], elements: [] };

const two = (n: bigint): bigint[] => [n, n];
const CONVOLUTION = {
  stride: two(1n),
  padding: two(1n),
  dilation: two(1n),
  transposed: false,
  output_padding: two(0n),
  groups: 1n,
};
const NORM = { momentum: 0.1, eps: 1e-5 };

type Row = [string, Record<string, Attribute>, (Tensor | null)[], Tensor[], string[]];
const ROWS: Row[] = [
  ["aten.mm", {}, [ones(2, 0), ones(0, 2)], [ones(2, 2)], ["00000000"]],
  ["aten.bmm", {}, [ones(2, 2, 0), ones(2, 0, 2)], [ones(2, 2, 2)], ["00000000"]],
  [
    "aten.addmm",
    { alpha: 1, beta: 1 },
    [ones(2), ones(2, 0), ones(0, 2)],
    [ones(2, 2)],
    ["3f800000"],
  ],
  ["aten.sum", {}, [ones(2, 0)], [ones()], ["00000000"]],
  ["aten.mean.dim", { dim: [1n], keepdim: false }, [ones(2, 0)], [ones(2)], ["7fc00000"]],
  [
    "aten.var_mean.correction",
    { dim: [1n], keepdim: false, correction: 1 },
    [ones(2, 0)],
    [ones(2), ones(2)],
    ["7fc00000", "7fc00000"],
  ],
  [
    "aten.convolution_backward",
    { ...CONVOLUTION, output_mask: [false, true, true] },
    [ones(0, 1, 2, 2), ones(0, 1, 2, 2), ones(1, 1, 3, 3)],
    [ones(1, 1, 3, 3), ones(1)],
    ["00000000", "00000000"],
  ],
  [
    "aten.convolution",
    CONVOLUTION,
    [ones(1, 0, 2, 2), ones(1, 0, 3, 3), null],
    [ones(1, 1, 2, 2)],
    ["00000000"],
  ],
  [
    "aten.native_layer_norm",
    { normalized_shape: [0n], eps: 1e-5 },
    [ones(2, 0)],
    [ones(2, 0), ones(2, 1), ones(2, 1)],
    ["", "7fc00000", "7fc00000"],
  ],
  [
    "aten.native_layer_norm_backward",
    { normalized_shape: [2n], output_mask: [false, true, true] },
    [ones(0, 2), ones(0, 2), ones(0, 1), ones(0, 1), null, null],
    [ones(2), ones(2)],
    ["00000000", "00000000"],
  ],
  [
    "aten._native_batch_norm_legit_functional",
    NORM,
    [ones(0, 2, 3), null, null, null, null],
    [ones(0, 2, 3), ones(2), ones(2)],
    ["", "7fc00000", "7fc00000"],
  ],
  [
    "aten.native_batch_norm_backward",
    { train: true, eps: 1e-5, output_mask: [false, true, true] },
    [ones(0, 2, 3), ones(0, 2, 3), null, null, null, ones(2), ones(2)],
    [ones(2), ones(2)],
    ["00000000", "00000000"],
  ],
  [
    "aten.embedding_dense_backward",
    { num_weights: 2n, padding_idx: -1n, scale_grad_by_freq: false },
    [ones(0, 2), indices],
    [ones(2, 2)],
    ["00000000"],
  ],
  ["aten.index_add", { dim: 0n }, [ones(2), indices, ones(0)], [ones(2)], ["3f800000"]],
  ["aten.scatter.src", { dim: 0n }, [ones(2), indices, ones(0)], [ones(2)], ["3f800000"]],
  [
    "tallystick.cross_entropy",
    { ignore_index: -100n, reduction: "mean" },
    [ones(0, 3), indices],
    [ones(), ones(0), ones(0)],
    ["7fc00000", "", ""],
  ],
  ["aten.mse_loss", { reduction: "mean" }, [ones(0), ones(0)], [ones()], ["7fc00000"]],
];

test.each(ROWS)("%s of nothing", (op, attributes, operands, outputs, due) => {
  const operator = TABLE.get(op) ?? fail(op);
  const call = callOf(operator, new Map(Object.entries(attributes)), operands, outputs);
  for (const contract of CONTRACTS) {
    due.forEach((want, output) => {
      if (want === "") return;
      const position = (outputs[output]?.elements.length ?? 1) - 1;
      const quantity = quantityOf(contract, { call, output, position }) ?? fail(op);
      const found = hexOf("f32", valueOf(quantity, operands));
      expect(`${contract.family} ${found}`).toBe(`${contract.family} ${want}`);
    });
  }
});

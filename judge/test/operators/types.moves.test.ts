/** Types of random numbers and of data movement. */
import { describe } from "vitest";
import { check } from "./typecalls.ts";

describe("random numbers (16.5)", () => {
  const drawn = { draw: 0n, shape: [2n, 3n] };
  check([
    {
      ...{ name: "tallystick.dropout_mask", operands: "i64[2]", outputs: "bool[2,3]" },
      attributes: { ...drawn, p: 0.5 },
      also: [[null, { p: -0, shape: [] }, "bool[]"]],
      refused: [
        [null, { p: 1 }, /p outside/],
        [null, { p: NaN }, /p outside/],
        [null, { p: -0.1 }, /p outside/],
        ["i64[3]", {}, /rng of shape/],
        ["[2]", {}, /not defined/],
        [null, { draw: 2n ** 32n }, /draw outside/],
        [null, { shape: [-1n] }, /size that is none/],
      ],
    },
    {
      ...{ name: "tallystick.uniform", operands: "i64[2]", outputs: "[2,3]" },
      attributes: { ...drawn, low: 0, high: 1 },
      refused: [
        [null, { draw: -1n }, /draw outside/],
        ["i64[]", {}, /rng of shape/],
        [null, { shape: Array.from({ length: 17 }, () => 1n) }, /17 axes/],
        [null, { shape: [2n ** 40n] }, /too large/],
        [null, { shape: [2n ** 40n + 1n, 0n] }, /size that is none/],
      ],
    },
    {
      ...{ name: "tallystick.gumbel", operands: "i64[2] i64[3]", outputs: "[3,5]" },
      attributes: { classes: 5n, draw: 0n },
      also: [
        ["i64[2] i64[0]", {}, "[0,5]"],
        [null, { classes: 0n }, "[3,0]"],
      ],
      refused: [
        [null, { draw: 2n ** 32n }, /draw outside/],
        [null, { classes: -1n }, /classes outside/],
        [null, { classes: 2n ** 32n }, /classes outside/],
        ["i64[2] i64[300]", { classes: 2n ** 32n - 1n }, /too large/],
        ["i64[1] i64[3]", {}, /rng of shape/],
        ["i64[2] i64[]", {}, /place of 0 axes/],
        ["i64[2] i64[1,3]", {}, /place of 2 axes/],
        ["i64[2] [3]", {}, /place of dtype f32/],
        ["i64[2]", {}, /place/],
      ],
    },
    {
      ...{ name: "tallystick.mask_scale", operands: "[2] bool[2]", outputs: "[2]" },
      attributes: { scale: 2 },
      refused: [
        ["[2] bool[1]", {}, /not one/],
        ["[2] [2]", {}, /not defined/],
        ["i64[2] bool[2]", {}, /not defined/],
      ],
    },
  ]);
});

describe("data movement (16.6)", () => {
  const slice = { dim: 0n, start: 1n, end: 4n, step: 2n };
  check([
    {
      ...{ name: "aten.view", operands: "u8[2,3]", attributes: { size: [6n] }, outputs: "u8[6]" },
      also: [["f64[0]", { size: [0n, 5n] }, "f64[0,5]"]],
      refused: [
        [null, { size: [5n] }, /another number/],
        [null, { size: [-1n] }, /another number/],
        [null, { size: [-2n, -3n] }, /size that is none/],
        [null, { size: [true, true] }, /not of kind ints/],
      ],
    },
    {
      ...{ name: "aten.permute", operands: "bool[2,3]", outputs: "bool[3,2]" },
      attributes: { dims: [1n, 0n] },
      also: [["[]", { dims: [] }, "[]"]],
      refused: [
        [null, { dims: [0n, 0n] }, /each axis once/],
        [null, { dims: [0n, -1n] }, /each axis once/],
        [null, { dims: [0n] }, /each axis once/],
        [null, { dims: [0n, 1n, 1n] }, /each axis once/],
      ],
    },
    {
      ...{ name: "aten.expand", operands: "i32[1,3]", outputs: "i32[2,4,3]" },
      attributes: { size: [2n, 4n, 3n] },
      also: [["[1]", { size: [0n] }, "[0]"]],
      refused: [
        ["[2,3]", {}, /does not expand/],
        ["[1,1,1,3]", {}, /does not expand/],
        [null, { size: [4n, 1n] }, /does not expand/],
      ],
    },
    {
      ...{ name: "aten.slice", operands: "f64[5,2]", attributes: slice, outputs: "f64[2,2]" },
      also: [
        [null, { start: 4n }, "f64[0,2]"],
        [null, { dim: -2n, start: 0n, end: 5n, step: 3n }, "f64[2,2]"],
      ],
      refused: [
        ["[]", {}, /0 axes/],
        [null, { end: 6n }, /end outside of 0 to 5/],
        [null, { start: 5n }, /start outside of 0 to 4/],
        [null, { start: -1n }, /start outside/],
        [null, { step: 0n }, /step below 1/],
        [null, { dim: 2n }, /no axis/],
      ],
    },
    {
      ...{ name: "aten.slice_scatter", operands: "i64[5] i64[2]", attributes: slice },
      outputs: "i64[5]",
      refused: [
        ["i64[5] [2]", {}, /source of dtype/],
        ["i64[5] i64[3]", {}, /source of shape/],
        [null, { step: 1n }, /source of shape/],
      ],
    },
    {
      ...{ name: "aten.cat", operands: "[2,3] [2,0] [2,1]", attributes: { dim: 1n } },
      outputs: "[2,4]",
      refused: [
        ["", {}, /0 operands/],
        ["[2,3] none", {}, /absent/],
        ["[2,3] i64[2,3]", {}, /dtype i64/],
        ["[2,3] [3,3]", {}, /joins/],
        ["[2,3] [0]", {}, /joins/],
        ["[]", { dim: 0n }, /0 axes/],
        [null, { dim: 0n }, /joins/],
      ],
    },
    {
      ...{ name: "aten.embedding", operands: "[5,3] i64[2,4]", outputs: "[2,4,3]" },
      attributes: { padding_idx: -1n },
      refused: [
        ["i64[5,3] i64[2]", {}, /not defined on i64/],
        ["[5,3] i32[2]", {}, /index of dtype/],
        ["[5] i64[2]", {}, /1 axes/],
      ],
    },
    {
      ...{ name: "aten.embedding_dense_backward", operands: "[2,4,3] i64[2,4]", outputs: "[5,3]" },
      attributes: { num_weights: 5n, padding_idx: -1n, scale_grad_by_freq: false },
      also: [[null, { num_weights: 0n }, "[0,3]"]],
      refused: [
        ["[2,4,3] i64[4,2]", {}, /index of shape/],
        ["[] i64[]", {}, /0 axes/],
        [null, { num_weights: -1n }, /negative/],
        [null, { scale_grad_by_freq: true }, /frequency/],
      ],
    },
    {
      ...{ name: "aten.gather", operands: "u8[2,3] i64[2,5]", outputs: "u8[2,5]" },
      attributes: { dim: 1n },
      also: [["[] i64[]", { dim: 0n }, "[]"]],
      refused: [
        ["u8[2,3] i64[3,3]", {}, /index of \[3,3\]/],
        ["u8[2,3] i64[2]", {}, /index of \[2\]/],
        ["u8[2,3] u8[2,3]", {}, /index of dtype/],
        [null, { dim: 0n }, /index of/],
      ],
    },
    {
      ...{ name: "aten.index_select", operands: "[2,3] i64[7]", outputs: "[2,7]" },
      attributes: { dim: -1n },
      refused: [
        ["[] i64[7]", {}, /0 axes/],
        ["[2,3] i64[7,1]", {}, /2 axes/],
        [null, { dim: 5n }, /no axis/],
      ],
    },
    {
      ...{ name: "aten.scatter.src", operands: "i32[4,3] i64[2,3] i32[2,3]", outputs: "i32[4,3]" },
      attributes: { dim: 0n },
      refused: [
        ["i32[4,3] i64[2,3] [2,3]", {}, /source of dtype/],
        ["i32[4,3] i64[2,3] i32[4,3]", {}, /source of shape/],
        ["i32[4,3] i64[2,4] i32[2,4]", {}, /index of/],
      ],
    },
    {
      ...{ name: "aten.where", operands: "bool[2,1] i32[3] i32[]", outputs: "i32[2,3]" },
      refused: [
        ["u8[2,1] i32[3] i32[]", {}, /condition of dtype/],
        ["bool[2,1] i32[3] i64[]", {}, /b of dtype/],
        ["bool[2] i32[3] i32[]", {}, /do not broadcast/],
      ],
    },
    {
      ...{ name: "aten.masked_fill", operands: "u8[2,3] bool[3]", outputs: "u8[2,3]" },
      attributes: { value: 255 },
      also: [["f64[2,3] bool[]", { value: NaN }, "f64[2,3]"]],
      refused: [
        [null, { value: 256 }, /value that u8 does not hold/],
        [null, { value: 0.5 }, /value that u8/],
        ["bool[2,3] bool[3]", { value: 2 }, /value that bool/],
        ["[3] bool[2,3]", {}, /larger than x/],
        ["[2,3] u8[3]", {}, /mask of dtype/],
      ],
    },
    {
      ...{ name: "aten.full", operands: "", outputs: "i64[2]" },
      attributes: { dtype: "i64", size: [2n], value: -(2 ** 63) },
      also: [
        [null, { dtype: "bool", value: -0 }, "bool[2]"],
        [null, { dtype: "f64", value: Infinity, size: [] }, "f64[]"],
      ],
      refused: [
        [null, { value: 2 ** 63 }, /value that i64/],
        [null, { value: NaN }, /value that i64/],
        [null, { dtype: "i32" }, /value that i32/],
        [null, { dtype: "f16" }, /not of kind dtype/],
        [null, { size: [-1n] }, /size that is none/],
        ["[2]", {}, /1 operands/],
      ],
    },
    {
      ...{ name: "aten.arange", operands: "", outputs: "i64[4]" },
      attributes: { dtype: "i64", start: 0, end: 10, step: 3 },
      also: [
        [null, { start: 10, end: 0, step: -3 }, "i64[4]"],
        [null, { start: 10 }, "i64[0]"],
        // The exact quotient is a little above 3; that of binary64 is 3.
        [null, { dtype: "f32", end: 1, step: 1 / 3 }, "[4]"],
        [null, { dtype: "f32", start: -0.5, end: 5e-324, step: 0.25 }, "[3]"],
      ],
      refused: [
        [null, { dtype: "f32", step: 0 }, /step of 0/],
        [null, { dtype: "f32", end: Infinity }, /not finite/],
        [null, { step: 0.5 }, /step that i64/],
        [null, { end: 2 ** 63 }, /end that i64/],
        [null, { dtype: "f64" }, /not defined for f64/],
        [null, { dtype: "f32", end: 1e300, step: 1e-300 }, /size that is none/],
      ],
    },
    {
      ...{ name: "aten.tril", operands: "bool[2,3]", outputs: "bool[2,3]" },
      attributes: { diagonal: -5n },
      refused: [
        ["[3]", {}, /1 axes/],
        ["[]", {}, /0 axes/],
        [null, { diagonal: 0 }, /not of kind int/],
      ],
    },
  ]);
});

/** Types of matrix products, convolutions and reductions. */
import { describe } from "vitest";
import { check } from "./typecalls.ts";

const WINDOW = {
  ...{ stride: [1n, 1n], padding: [0n, 0n], dilation: [1n, 1n], transposed: false },
  ...{ output_padding: [0n, 0n], groups: 1n },
};

const HUGE = 2n ** 28n - 1n;

describe("dot class and convolution (16.2)", () => {
  check([
    {
      ...{ name: "aten.mm", operands: "[2,3] [3,4]", outputs: "[2,4]" },
      also: [["[2,0] [0,4]", {}, "[2,4]"]],
      refused: [
        ["[2,3] [4,3]", {}, /rows of 3 by columns of 4/],
        ["[2,3] [3]", {}, /1 axes/],
        ["[2,3] i64[3,4]", {}, /b of dtype i64/],
        ["i64[2,3] i64[3,4]", {}, /not defined for i64, i64/],
        ["[2,3] none", {}, /needs its operand b/],
        ["[2,3] [3,4] none", {}, /3 operands/],
        ["[1048576,0] [0,1048576]", {}, /too large/],
      ],
    },
    {
      ...{ name: "aten.bmm", operands: "[5,2,3] [5,3,4]", outputs: "[5,2,4]" },
      refused: [
        ["[5,2,3] [6,3,4]", {}, /two sizes of the batch/],
        ["[5,2,3] [1,3,4]", {}, /two sizes of the batch/],
        ["[2,3] [3,4]", {}, /2 axes/],
      ],
    },
    {
      ...{ name: "aten.addmm", operands: "[4] [2,3] [3,4]", outputs: "[2,4]" },
      attributes: { alpha: 1, beta: 1 },
      also: [
        ["[] [2,3] [3,4]", {}, "[2,4]"],
        ["[2,1] [2,3] [3,4]", { beta: NaN }, "[2,4]"],
      ],
      refused: [
        ["[3] [2,3] [3,4]", {}, /do not broadcast/],
        ["[1,2,4] [2,3] [3,4]", {}, /3 axes/],
        ["[2,4] [1,3] [3,4]", {}, /larger than the product/],
        [null, { beta: 1n }, /beta that is not of kind float/],
      ],
    },
    {
      ...{ name: "aten.convolution", operands: "[2,4,5,6] [6,4,3,2]", outputs: "[2,6,3,5]" },
      attributes: WINDOW,
      also: [
        ["[2,4,5,6] [6,4,3,2] [6]", {}, "[2,6,3,5]"],
        ["[2,4,5,6] [6,2,3,2] none", { groups: 2n, stride: [2n, 3n] }, "[2,6,2,2]"],
        [null, { padding: [1n], dilation: [2n], output_padding: [0n] }, "[2,6,3,6]"],
        ["[0,1,1,268435455] [1,1,1,1]", {}, "[0,1,1,268435455]"],
      ],
      refused: [
        ["[2,4,5,6] [6,4,3,2] [4]", {}, /bias of shape \[4\], not \[6\]/],
        ["[2,4,5,6] [6,2,3,2]", {}, /4 and 6 channels, a weight of 2, 1 groups/],
        ["[2,4,5,6] [6,1,3,2]", { groups: 4n }, /channels/],
        ["[2,5,5,6] [6,2,3,2]", { groups: 2n }, /5 and 6 channels, a weight of 2, 2 groups/],
        ["[2,4,2,6] [6,4,3,2]", {}, /larger than its input/],
        ["[2,4,5,6] [6,4,0,2]", {}, /kernel that is empty/],
        ["[4,5,6] [6,4,3,2]", {}, /3 axes/],
        [null, { stride: [0n, 1n] }, /stride outside of 1/],
        [null, { stride: [] }, /stride of 0 numbers/],
        [null, { stride: [1n, 1n, 1n] }, /stride of 3 numbers/],
        [null, { padding: [-1n, 0n] }, /padding outside of 0/],
        [null, { padding: [HUGE + 1n] }, /padding outside of 0/],
        [null, { dilation: [1n, 0n] }, /dilation outside of 1/],
        [null, { transposed: true }, /transposed/],
        [null, { output_padding: [0n, 1n] }, /output_padding/],
        [null, { groups: 0n }, /groups outside of 1/],
        ["[0,4,5,268435456] [6,4,3,2]", {}, /a size over 268435455/],
      ],
    },
    {
      name: "aten.convolution_backward",
      ...{ operands: "[2,6,3,5] [2,4,5,6] [6,4,3,2]", outputs: "[2,4,5,6] [6,4,3,2] [6]" },
      attributes: { ...WINDOW, output_mask: [true, true, true] },
      also: [
        [null, { output_mask: [false, true, false] }, "[6,4,3,2]"],
        [null, { output_mask: [false, false, false] }, ""],
      ],
      refused: [
        ["[2,6,3,4] [2,4,5,6] [6,4,3,2]", {}, /grad of shape/],
        [null, { output_mask: [true, true] }, /not of 3/],
        [null, { output_mask: [1n, 1n, 1n] }, /not of kind bools/],
        [null, { groups: 3n }, /channels/],
      ],
    },
  ]);
});

describe("reductions (16.3)", () => {
  const list = { dim: [1n], keepdim: false };
  check([
    {
      ...{ name: "aten.sum.dim_IntList", operands: "[2,3,4]", outputs: "[2,4]", attributes: list },
      also: [
        [null, { dim: [] }, "[]"],
        [null, { dim: [-1n, 0n], keepdim: true }, "[1,3,1]"],
        ["bool[2,3]", {}, "i64[2]"],
        ["[]", { dim: [-1n], keepdim: true }, "[]"],
        ["[2,0]", {}, "[2]"],
      ],
      refused: [
        [null, { dim: [3n] }, /no axis 3/],
        [null, { dim: [-4n] }, /no axis -4/],
        [null, { dim: [1n, -2n] }, /an axis twice/],
        ["[]", { dim: [0n, -1n] }, /an axis twice/],
        ["[]", { dim: [1n] }, /no axis 1/],
        ["i32[2,3]", {}, /not defined for i32/],
        ["f64[2,3]", {}, /not defined for f64/],
        [null, { dim: 1n }, /not of kind ints/],
        [null, { keepdim: 1n }, /not of kind bool/],
      ],
    },
    {
      ...{ name: "aten.mean.dim", operands: "[2,3]", outputs: "[2]", attributes: list },
      also: [["[2,0]", {}, "[2]"]],
      refused: [
        ["i64[2,3]", {}, /not defined for i64/],
        ["bool[2,3]", {}, /not defined for bool/],
        ["", {}, /needs its operand x/],
      ],
    },
    {
      ...{ name: "aten.amax", operands: "i64[2,3]", outputs: "i64[2]", attributes: list },
      also: [["[0,0]", {}, "[0]"]],
      refused: [
        ["[2,0]", {}, /empty axis/],
        ["[2,0]", { dim: [] }, /empty axis/],
        ["bool[2,3]", {}, /not defined for bool/],
      ],
    },
    {
      ...{ name: "aten.argmax", operands: "[2,3]", outputs: "i64[2,1]" },
      attributes: { dim: -1n, keepdim: true },
      also: [["[]", {}, "i64[]"]],
      refused: [
        ["[2,0]", {}, /empty axis/],
        [null, { dim: 2n }, /no axis 2/],
        [null, { dim: [1n] }, /not of kind int/],
      ],
    },
    {
      ...{ name: "aten.max", operands: "i64[3]", outputs: "i64[]" },
      refused: [
        ["[0]", {}, /no elements/],
        ["u8[3]", {}, /not defined/],
        ["[3] [3]", {}, /2 operands/],
      ],
    },
    {
      ...{ name: "tallystick.rank", operands: "[2,3]", outputs: "i64[2,3]" },
      attributes: { descending: true, dim: 0n },
      also: [["[]", { dim: -1n }, "i64[]"]],
      refused: [
        [null, { dim: 2n }, /no axis/],
        ["f64[2,3]", {}, /not defined/],
        [null, { descending: "yes" }, /not of kind bool/],
      ],
    },
    {
      ...{ name: "tallystick.occurrences", operands: "i64[7] i64[3] i64[3]", outputs: "i64[3,5]" },
      attributes: { classes: 5n },
      also: [
        ["i64[0] i64[0] i64[0]", {}, "i64[0,5]"],
        [null, { classes: 0n }, "i64[3,0]"],
      ],
      refused: [
        [null, { classes: -1n }, /classes outside/],
        [null, { classes: 2n ** 62n }, /size that is none/],
        ["i64[7] i64[3] i64[2]", {}, /last of shape/],
        ["i64[7] i64[3,1] i64[3,1]", {}, /first of 2 axes/],
        ["i64[1,7] i64[3] i64[3]", {}, /tokens of 2 axes/],
        ["i64[7] i32[3] i64[3]", {}, /first of dtype i32/],
        ["[7] i64[3] i64[3]", {}, /not defined/],
        ["i64[7] i64[3]", {}, /last/],
      ],
    },
    {
      ...{ name: "aten._softmax_backward_data", operands: "[2,3] [2,3]", outputs: "[2,3]" },
      attributes: { dim: 1n },
      refused: [
        ["[2,3] [3]", {}, /y of shape/],
        ["[2,3] f64[2,3]", {}, /y of dtype f64/],
        [null, { dim: -3n }, /no axis/],
      ],
    },
    {
      ...{ name: "aten.index_add", operands: "[4,3] i64[2] [2,3]", outputs: "[4,3]" },
      attributes: { dim: 0n },
      refused: [
        ["[] i64[1] [1]", {}, /0 axes/],
        ["[4,3] [2] [2,3]", {}, /index of dtype f32/],
        ["[4,3] i64[2] [3,3]", {}, /source of shape/],
        ["[4,3] i64[2,1] [2,3]", {}, /index of 2 axes/],
        [null, { dim: 1n }, /source of shape/],
      ],
    },
  ]);
});

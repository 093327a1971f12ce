/** Types of normalisation, pooling and losses. */
import { describe, expect, test } from "vitest";
import { words } from "../vectors.ts";
import { check, types } from "./typecalls.ts";

const POOL = {
  ...{ kernel_size: [2n, 2n], stride: [2n, 2n], padding: [0n, 0n], dilation: [1n, 1n] },
  ceil_mode: false,
};

describe("normalisation, pooling and losses (16.4)", () => {
  const layer = { eps: 0, normalized_shape: [3n] };
  const backward = { normalized_shape: [3n], output_mask: [true, true, true] };
  const training = { eps: 0, momentum: 0 };
  const batch = { eps: 0, train: true, output_mask: [true, true, true] };
  const loss = { ignore_index: -100n, reduction: "mean" };
  check([
    {
      ...{ name: "aten.native_layer_norm", operands: "[2,3]", attributes: layer },
      outputs: "[2,3] [2,1] [2,1]",
      also: [
        ["[2,3] none [3]", {}, "[2,3] [2,1] [2,1]"],
        ["[2,3]", { normalized_shape: [2n, 3n] }, "[2,3] [1,1] [1,1]"],
      ],
      refused: [
        [null, { normalized_shape: [] }, /normalized_shape/],
        [null, { normalized_shape: [2n] }, /normalized_shape/],
        [null, { normalized_shape: [1n, 2n, 3n] }, /normalized_shape/],
        ["[2,3] [2,3]", {}, /weight of shape/],
        ["[2,3] none i64[3]", {}, /bias of dtype/],
        ["[2,3] none [2]", {}, /bias of shape/],
      ],
    },
    {
      name: "aten.native_layer_norm_backward",
      ...{ operands: "[2,3] [2,3] [2,1] [2,1]", outputs: "[2,3] [3] [3]", attributes: backward },
      also: [[null, { output_mask: [true, false, false] }, "[2,3]"]],
      refused: [
        ["[2,3] [2,3] [2] [2,1]", {}, /mean of shape/],
        ["[2,3] [2,3] [2,1] [2]", {}, /rstd of shape/],
        ["[3] [2,3] [2,1] [2,1]", {}, /grad of shape/],
        ["[2,3] [2,3] [2,1] none", {}, /needs its operand rstd/],
        [null, { output_mask: [] }, /not of 3/],
        [null, { output_mask: true }, /output_mask that is not of kind bools/],
        [null, { normalized_shape: 3n }, /normalized_shape that is not of kind ints/],
      ],
    },
    {
      name: "aten._native_batch_norm_legit_functional",
      ...{ operands: "[2,3,4]", outputs: "[2,3,4] [3] [3]", attributes: training },
      also: [["[2,3] none [3] [3] [3]", {}, "[2,3] [3] [3] [3] [3]"]],
      refused: [
        ["[2]", {}, /1 axes/],
        ["[2,3] none none [3]", {}, /not both of running_mean and running_var/],
        ["[2,3] [2]", {}, /weight of shape/],
        ["[2,3] none none [3] [2]", {}, /running_var of shape/],
      ],
    },
    {
      name: "aten.native_batch_norm_backward",
      operands: "[2,3] [2,3] none none none [3] [3]",
      ...{ outputs: "[2,3] [3] [3]", attributes: batch },
      also: [["[2,3] [2,3] [3] [3] [3]", { train: false }, "[2,3] [3] [3]"]],
      refused: [
        [null, { train: false }, /train/],
        ["[2,3] [2,3] [3] [3] [3]", {}, /train/],
        ["[2,3] [2,3] none [3] [3] [3] [3]", {}, /train/],
        ["[2,3] [2,3]", {}, /train/],
        ["[2,3] [2,3] none none none [3]", {}, /not both of mean and rstd/],
        ["[2,4] [2,3] none none none [3] [3]", {}, /grad of shape/],
      ],
    },
    {
      name: "aten._native_batch_norm_legit_no_training",
      ...{ operands: "[2,3] none none [3] [3]", outputs: "[2,3]", attributes: { eps: 0 } },
      refused: [
        ["[2,3] none none [3]", {}, /needs its operand running_var/],
        ["[2,3] none none none [3]", {}, /needs its operand running_mean/],
        ["[2,3] none none [1] [3]", {}, /running_mean of shape/],
      ],
    },
    {
      ...{ name: "aten.max_pool2d_with_indices", operands: "[1,5,6]", attributes: POOL },
      outputs: "[1,2,3] i64[1,2,3]",
      also: [
        ["[1,2,5,6]", { ceil_mode: true }, "[1,2,3,3] i64[1,2,3,3]"],
        ["[1,5,6]", { stride: [3n], padding: [1n], ceil_mode: true }, "[1,2,3] i64[1,2,3]"],
        ["[0,5,6]", {}, "[0,2,3] i64[0,2,3]"],
        // Of no output a tap is asked. In floor mode the last place counts wherever it lies.
        ["[0,3,3]", { kernel_size: [1n], padding: [1n], stride: [1n] }, "[0,5,5] i64[0,5,5]"],
        // Only places in the padding are looked at one by one: of these it would take hours.
        [
          "[1,1,68719476736]",
          { kernel_size: [1n, 3n], stride: [1n], padding: [0n, 1n] },
          "[1,1,68719476736] i64[1,1,68719476736]",
        ],
      ],
      refused: [
        ["[5,6]", {}, /2 axes/],
        ["[1,1,1,5,6]", {}, /5 axes/],
        ["i64[1,5,6]", {}, /not defined/],
        [null, { kernel_size: [0n] }, /kernel_size outside of 1/],
        [null, { stride: [65536n] }, /stride outside of 1/],
        [null, { padding: [65536n] }, /padding outside of 0/],
        [null, { kernel_size: [2n, 9n], stride: [1n] }, /window larger/],
        [null, { kernel_size: [1n], padding: [1n], stride: [1n] }, /without a tap/],
        ["[1,2,2]", { dilation: [3n], padding: [1n], stride: [1n] }, /without a tap/],
      ],
    },
    {
      name: "aten.max_pool2d_with_indices_backward",
      ...{ operands: "[1,2,3] [1,5,6] i64[1,2,3]", outputs: "[1,5,6]", attributes: POOL },
      refused: [
        ["[1,2,3] [1,5,6] [1,2,3]", {}, /index of dtype/],
        ["[1,2,2] [1,5,6] i64[1,2,3]", {}, /grad of shape/],
        ["[1,2,3] [1,5,6] i64[1,2,2]", {}, /index of shape/],
        [null, { ceil_mode: true }, /grad of shape/],
      ],
    },
    {
      ...{ name: "tallystick.cross_entropy", operands: "[2,3] i64[2]", attributes: loss },
      outputs: "[] [2] [2]",
      also: [
        [null, { reduction: "none" }, "[2] [2] [2]"],
        ["[0,3] i64[0]", {}, "[] [0] [0]"],
      ],
      refused: [
        ["[2,0] i64[2]", {}, /no classes/],
        ["[2,3] i64[3]", {}, /target of shape/],
        ["[2,3] i32[2]", {}, /target of dtype/],
        ["[2,3,1] i64[2]", {}, /3 axes/],
        [null, { reduction: "max" }, /reduction that is none of/],
        [null, { ignore_index: 2n ** 63n }, /not of kind int/],
      ],
    },
    {
      name: "tallystick.cross_entropy_backward",
      ...{ operands: "[] [2,3] i64[2] [2] [2]", outputs: "[2,3]", attributes: loss },
      also: [["[2] [2,3] i64[2] [2] [2]", { reduction: "none" }, "[2,3]"]],
      refused: [
        [null, { reduction: "none" }, /grad of shape/],
        ["[2] [2,3] i64[2] [2] [2]", {}, /grad of shape/],
        ["[] [2,3] i64[2] [3] [2]", {}, /row_max of shape/],
        ["[] [2,3] i64[2] [2] [3]", {}, /row_sum of shape/],
      ],
    },
    {
      ...{ name: "aten.nll_loss_backward", operands: "[] [2,3] i64[2] []", attributes: loss },
      outputs: "[2,3]",
      refused: [
        ["[2] [2,3] i64[2] []", {}, /grad of shape/],
        ["[] [2,3] i64[2] [1]", {}, /total_weight of shape/],
        ["[] [2,3] i64[1] []", {}, /target of shape/],
        ["[] [2,3] i64[2]", {}, /needs its operand total_weight/],
      ],
    },
    {
      ...{ name: "aten.mse_loss_backward", operands: "[] [2] [2]", outputs: "[2]" },
      attributes: { reduction: "sum" },
      refused: [
        [null, { reduction: "none" }, /grad of shape/],
        ["[] [2] [1]", {}, /y of shape/],
        [null, { reduction: "" }, /reduction that is none of/],
      ],
    },
    {
      ...{ name: "aten.gelu_backward", operands: "[2] [2]", outputs: "[2]" },
      attributes: { approximate: "tanh" },
      refused: [
        ["[2] [1]", {}, /not one/],
        [null, { approximate: "erf" }, /approximate that is none of/],
        ["[2] i64[2]", {}, /not defined for f32, i64/],
      ],
    },
  ]);
});

describe("quantised weights (16.10)", () => {
  check([
    {
      ...{ name: "tallystick.dequantize", operands: "u8[2,68]", outputs: "[2,64]" },
      attributes: { format: "q8_0" },
      also: [
        ["u8[0]", {}, "[0]"],
        ["u8[144]", { format: "q4_k" }, "[256]"],
      ],
      refused: [
        ["u8[2,67]", {}, /rows of 67 bytes/],
        ["u8[2,34]", { format: "q4_0" }, /rows of 34 bytes/],
        [null, { format: "q9_0" }, /format that is none of/],
        ["u8[]", {}, /0 axes/],
        ["i64[2,68]", {}, /not defined|dtype/],
      ],
    },
  ]);
});

type Five = [number, number, number, number, number];

/** The outputs along an axis by 6.15, its taps counted one after the other; undefined if refused. */
function placesOf(
  size: number,
  { k, s, p, d }: { k: number; s: number; p: number; d: number },
  ceil: boolean,
): number | undefined {
  const quotient = (size + 2 * p - d * (k - 1) - 1) / s;
  let count = (ceil ? Math.ceil(quotient) : Math.floor(quotient)) + 1;
  if (ceil && (count - 1) * s >= size + p) count -= 1;
  for (let j = 0; j < count; j++) {
    const taps = Array.from({ length: k }, (_, i) => j * s - p + i * d);
    if (!taps.some((tap) => tap >= 0 && tap < size)) return undefined;
  }
  return count < 0 ? undefined : count;
}

test("windows of all kinds, against taps that are counted (6.15)", () => {
  const word = words(615);
  const seen = new Map<string, number>();
  for (let turn = 0; turn < 3000; turn++) {
    const [size, k, s, p, d] = [7, 4, 4, 4, 4].map((most) => word() % most) as Five;
    const window = { k: k + 1, s: s + 1, p, d: d + 1 };
    const ceil = word() % 2 === 1;
    const want = placesOf(size, window, ceil);
    const attributes = {
      ...{ kernel_size: [1n, BigInt(window.k)], stride: [1n, BigInt(window.s)] },
      ...{ padding: [0n, BigInt(p)], dilation: [1n, BigInt(window.d)], ceil_mode: ceil },
    };
    const infer = (): string => types("aten.max_pool2d_with_indices", `[1,1,${size}]`, attributes);
    const said = JSON.stringify({ size, ...window, ceil });
    if (want === undefined) expect(infer, said).toThrow(/without a tap|larger than its input/);
    else expect(infer(), said).toBe(`[1,1,${want}] i64[1,1,${want}]`);
    const kind = want === undefined ? "refused" : want === 0 ? "empty" : "good";
    seen.set(kind, (seen.get(kind) ?? 0) + 1);
  }
  for (const kind of ["refused", "empty", "good"]) {
    expect(seen.get(kind)).toBeGreaterThan(20);
  }
});

/** Types of elementwise operators and optimizers, and what every operator is held to. */
import { describe, expect, test } from "vitest";
import { RefusedError } from "../../src/errors.ts";
import type { Attribute } from "../../src/operators/attributes.ts";
import { inferTypes } from "../../src/operators/types.ts";
import { check, TABLE, types } from "./typecalls.ts";

describe("elementwise (16.7)", () => {
  const one = { alpha: 1 };
  check([
    {
      ...{ name: "aten.add.Tensor", operands: "[2,1] [3]", outputs: "[2,3]", attributes: one },
      also: [
        ["i64[2] i64[]", { alpha: -3 }, "i64[2]"],
        ["[1] [0]", {}, "[0]"],
        [null, { alpha: Infinity }, "[2,3]"],
      ],
      refused: [
        ["[2] [3]", {}, /do not broadcast/],
        ["[0] [2]", {}, /do not broadcast/],
        ["[2] i64[2]", {}, /not defined for f32, i64/],
        ["bool[2] bool[2]", {}, /not defined/],
        ["i64[2] i64[2]", { alpha: 0.5 }, /alpha that i64/],
        ["[1048576,1] [1,1048576]", {}, /too large/],
      ],
    },
    {
      ...{ name: "aten.add.Scalar", operands: "i64[2]", outputs: "i64[2]" },
      attributes: { other: 3, alpha: 1 },
      refused: [
        [null, { other: 0.5 }, /other that i64/],
        [null, { other: 2 ** 63 }, /other that i64/],
        [null, { other: 3n }, /not of kind float/],
        ["i32[2]", {}, /not defined/],
      ],
    },
    {
      ...{ name: "aten.div.Tensor", operands: "[2] [2]", outputs: "[2]" },
      refused: [
        ["i64[2] i64[2]", {}, /not defined/],
        ["[2]", {}, /needs its operand b/],
        ["[2] none", {}, /needs its operand b/],
      ],
    },
    {
      ...{ name: "aten.clamp", operands: "i64[2]", outputs: "i64[2]", attributes: { max: 1 } },
      also: [["[2]", { min: NaN }, "[2]"]],
      refused: [
        [null, { min: 0.5 }, /min that i64/],
        [null, { max: Infinity }, /max that i64/],
        ["u8[2]", {}, /not defined/],
      ],
    },
    {
      name: "aten.eq.Tensor",
      operands: "u8[2] u8[]",
      outputs: "bool[2]",
      refused: [
        ["f64[2] f64[2]", {}, /not defined/],
        ["u8[2] i32[2]", {}, /not defined/],
        ["u8[2] u8[3]", {}, /do not broadcast/],
      ],
    },
    {
      ...{ name: "aten.lt.Scalar", operands: "bool[2]", outputs: "bool[2]" },
      attributes: { other: 1 },
      refused: [
        [null, { other: 2 }, /other that bool/],
        ["i32[2]", { other: 2 ** 31 }, /other that i32/],
        ["u8[2]", { other: -1 }, /other that u8/],
        ["f64[2]", {}, /not defined/],
      ],
    },
    {
      ...{ name: "aten.bitwise_and.Tensor", operands: "bool[2] bool[2]", outputs: "bool[2]" },
      refused: [
        ["u8[2] u8[2]", {}, /not defined/],
        ["bool[2] i64[2]", {}, /not defined/],
        ["[2] [2]", {}, /not defined/],
      ],
    },
    {
      ...{ name: "aten._to_copy", operands: "i64[2]", attributes: { dtype: "i32" } },
      outputs: "i32[2]",
      also: [["bool[]", { dtype: "f32" }, "[]"]],
      refused: [
        [null, { dtype: "i64" }, /not defined/],
        ["i32[2]", { dtype: "f32" }, /not defined/],
        ["[2]", { dtype: "f64" }, /not defined/],
        [null, { dtype: "int" }, /not of kind dtype/],
      ],
    },
    {
      ...{ name: "aten.sigmoid_backward", operands: "[2] [2]", outputs: "[2]" },
      refused: [
        ["[2] [1]", {}, /not one/],
        ["[2] [2] [2]", {}, /3 operands/],
        ["f64[2] f64[2]", {}, /not defined/],
      ],
    },
    {
      ...{ name: "tallystick.fold", operands: "[2] [2] [2]", outputs: "[2]" },
      attributes: { mean: false },
      also: [
        [null, { mean: true, count: 65536n }, "[2]"],
        [Array.from({ length: 256 }, () => "[2]").join(" "), { mean: true }, "[2]"],
      ],
      refused: [
        ["", {}, /0 operands/],
        [Array.from({ length: 257 }, () => "[2]").join(" "), {}, /folds 257/],
        [null, { count: 3n }, /count without mean/],
        [null, { mean: true, count: 0n }, /count outside/],
        [null, { mean: true, count: 65537n }, /count outside/],
        ["[2] [1]", {}, /not one/],
        ["i64[2]", {}, /not defined/],
      ],
    },
  ]);
});

describe("optimizers and commit (16.8)", () => {
  const adam = { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0 };
  const sgd = { dampening: 0, momentum: 0, nesterov: false, weight_decay: 0 };
  check([
    {
      ...{ name: "tallystick.adamw_step", attributes: adam, outputs: "[2] [2] [2]" },
      operands: "[2] [2] [2] [2] f64[] f64[] f64[]",
      also: [["[2] [2] [2] [2] f64[] f64[] f64[] []", {}, "[2] [2] [2]"]],
      refused: [
        ["[2] [2] [2] [1] f64[] f64[] f64[]", {}, /v of shape/],
        ["[2] [2] [2] [2] f64[1] f64[] f64[]", {}, /lr of shape/],
        ["[2] [2] [2] [2] [] f64[] f64[]", {}, /not defined/],
        ["[2] [2] [2] [2] f64[] f64[] f64[] f64[]", {}, /coefficient of dtype f64/],
        ["[2] [2] [2] [2] f64[] f64[] f64[] [1]", {}, /coefficient of shape/],
      ],
    },
    {
      ...{ name: "tallystick.sgd_step", operands: "[2] [2] none f64[]", outputs: "[2]" },
      attributes: sgd,
      also: [
        ["[2] [2] [2] f64[] []", { momentum: 1e-60 }, "[2] [2]"],
        [null, { momentum: -0 }, "[2]"],
      ],
      refused: [
        [null, { momentum: 0.9 }, /momentum and no buffer/],
        ["[2] [2] [2] f64[]", {}, /buffer and no momentum/],
        ["[2] [2] [] f64[]", { momentum: 0.9 }, /buffer of shape/],
        ["[2] [2]", {}, /needs its operand lr/],
      ],
    },
    {
      ...{ name: "tallystick.beta_power", operands: "f64[]", outputs: "f64[]" },
      attributes: { beta: 0.9 },
      refused: [
        ["[]", {}, /not defined/],
        ["f64[1]", {}, /power of shape/],
        ["", {}, /needs its operand power/],
      ],
    },
    {
      ...{ name: "tallystick.clip_coef", operands: "[] [] []", outputs: "[] []" },
      attributes: { max_norm: 1 },
      refused: [
        ["", {}, /0 operands/],
        ["[] [1]", {}, /not one/],
        ["[1] [1]", {}, /squares of shape/],
        ["[] f64[]", {}, /dtype f64/],
      ],
    },
    {
      ...{ name: "tallystick.commit", operands: "[2] i64[] bool[3]", outputs: "" },
      refused: [
        ["[2] none", {}, /absent/],
        [null, { count: 1n }, /no attributes/],
        ["[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", {}, /17 axes/],
      ],
    },
  ]);
});

describe("what every operator is held to", () => {
  test.each([
    ["no operator", "aten.none", "[2]", {}, /no operator aten.none/],
    ["a name of Object", "toString", "[2]", {}, /no operator/],
    ["an attribute of nothing", "aten.exp", "[2]", { alpha: 1 }, /no attribute alpha/],
    ["an attribute missing", "aten.cumsum", "[2]", {}, /needs an attribute dim/],
    ["an operand over a limit", "aten.exp", "[1099511627776]", {}, /too large/],
    ["a clamp without a bound", "aten.clamp", "[2]", {}, /no bound/],
  ] as const)("%s", (_, name, operands, given, sentence) => {
    expect(() => types(name, operands, given)).toThrow(RefusedError);
    expect(() => types(name, operands, given)).toThrow(sentence);
  });

  test("types at the limits of COMMITMENTS 11.1", () => {
    const axes = `[${new Array<number>(16).fill(1).join()}]`;
    expect(types("aten.exp", axes, {})).toBe(axes);
    expect(types("aten.exp", "[274877906944]", {})).toBe("[274877906944]"); // of 4 bytes
    expect(() => types("aten.exp", "[274877906945]", {})).toThrow("too large");
  });

  test.each(["bf16", "f16"])("%s is moved by five operators, and nothing else (1.14)", (dtype) => {
    const x = `${dtype}[2,2]`;
    expect(types("aten.view", x, { size: [4n] })).toBe(`${dtype}[4]`);
    expect(types("aten._to_copy", x, { dtype: "f32" })).toBe("[2,2]");
    expect(() => types("aten._to_copy", "[2,2]", { dtype })).toThrow("not of kind dtype");
    for (const [name, given] of [
      ["aten.cat", { dim: 0n }],
      ["aten.tril", { diagonal: 0n }],
    ] as const) {
      expect(() => types(name, x, given)).toThrow(RefusedError);
      expect(() => types(name, x, given)).toThrow(`not defined for ${dtype}`);
    }
  });

  test("attributes are in the bytewise order of their names", () => {
    const given = new Map<string, Attribute>([["keepdim", false], ["dim", 0n]]); // prettier-ignore
    const operands = [{ dtype: "f32", shape: [2] }] as const;
    expect(() => inferTypes(TABLE, "aten.argmax", given, operands)).toThrow("out of order");
  });

  test("a node has at most 1048592 operands", () => {
    const type = { dtype: "f32", shape: [] } as const;
    const many = Array.from({ length: 1048592 }, () => type);
    expect(inferTypes(TABLE, "tallystick.commit", new Map(), many)).toEqual([]);
    expect(() => inferTypes(TABLE, "tallystick.commit", new Map(), [...many, type])).toThrow(
      "too many operands",
    );
  });
});

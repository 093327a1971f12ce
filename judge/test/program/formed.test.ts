/** Programs that are well formed but for one rule (PROGRAM 1.2, 3.4, 6.2 to 6.5). */
import { describe, expect, test } from "vitest";

import { toUtf8 } from "../../src/bytes.ts";
import { readProgram } from "../../src/program/read.ts";
import { orRefused, TABLE } from "./cases.ts";

const isRead = (...lines: readonly string[]): boolean =>
  orRefused(() => readProgram(toUtf8([...lines, "end", ""].join("\n")), TABLE)) !== "refused";

const HEAD = ["tallystick program 1", "contract ordered/1-draft.1"];

/** A program with one more input, which nothing reads. */
const withInput = (kind: string, name: string, type: string): boolean => {
  const inputs = [
    { name: "batch.a", line: "input batch batch.a f32[2]" },
    { name, line: `input ${kind} ${name} ${type}` },
  ];
  const lines = inputs.sort((a, b) => (a.name < b.name ? -1 : 1)).map(({ line }) => line);
  return isRead(...HEAD, ...lines, "%0 = aten.sum(@batch.a) : f32[]", "output loss %0");
};

describe("the kind of an input is that of its name (1.2)", () => {
  const kinds = [
    ["batch", "batch.b", "f32[2]"],
    ["scalar", "scalar.lr", "f64[]"],
    ["rng", "rng", "i64[2]"],
    ["state", "w", "f32[2]"],
  ] as const;
  test.each(kinds)("%s", (kind, name, type) => {
    expect(withInput(kind, name, type)).toBe(true);
    for (const [other] of kinds) {
      if (other !== kind) expect(withInput(other, name, type)).toBe(false);
    }
  });
});

test("a scalar is f64[], and the key i64[2] (1.2)", () => {
  for (const type of ["f32[]", "f64[1]", "i64[]"]) {
    expect(withInput("scalar", "scalar.lr", type)).toBe(false);
  }
  for (const type of ["i64[]", "i64[1]", "i64[3]", "i32[2]"]) {
    expect(withInput("rng", "rng", type)).toBe(false);
  }
});

test("the commit node is the last one (3.4)", () => {
  const lines = [...HEAD, "input state w f32[2]"];
  const commit = (index: number): string => `%${index} = tallystick.commit(@w) : none`;
  const neg = (index: number): string => `%${index} = aten.neg(@w) : f32[2]`;
  const outputs = ["output w @w"];
  expect(isRead(...lines, neg(0), commit(1), ...outputs)).toBe(true);
  expect(isRead(...lines, commit(0), neg(1), ...outputs)).toBe(false);
});

test("a next state has its slot's type (3.4)", () => {
  const isFine = (value: string, type: string): boolean =>
    isRead(
      ...[...HEAD, "input state w f32[2]", `%0 = ${value} : ${type}`],
      ...["%1 = tallystick.commit(%0) : none", "output w %0"],
    );
  expect(isFine("aten.neg(@w)", "f32[2]")).toBe(true);
  expect(isFine("aten.sum(@w)", "f32[]")).toBe(false);
});

test("the next state of a slot of a stored type is that slot (3.6)", () => {
  const inputs = ["input state a bf16[2]", "input state b bf16[2]"];
  const isFine = (a: string, b: string): boolean =>
    isRead(
      ...[...HEAD, ...inputs, `%0 = tallystick.commit(@${a}, @${b}) : none`],
      ...[`output a @${a}`, `output b @${b}`],
    );
  expect(isFine("a", "b")).toBe(true);
  expect(isFine("b", "a")).toBe(false);
});

test("a list of truth values may begin with either (2.5)", () => {
  const isFine = (mask: string, types: string): boolean =>
    isRead(
      ...[...HEAD, "input batch batch.a f32[2,3]", "input batch batch.b f32[2,1]"],
      "%0 = aten.native_layer_norm_backward(@batch.a, @batch.a, @batch.b, @batch.b)" +
        `{normalized_shape=[3], output_mask=[${mask}]} : ${types}`,
    );
  expect(isFine("true,false,false", "f32[2,3]")).toBe(true);
  expect(isFine("false,true,true", "f32[3], f32[3]")).toBe(true);
  expect(isFine("false,1,true", "f32[3], f32[3]")).toBe(false);
});

test("each slot has a next state, or none has one (3.4)", () => {
  const inputs = ["input state a f32[]", "input state b f32[]"];
  const loss = "output loss @a";
  const commit = (...names: string[]): string =>
    `%0 = tallystick.commit(${names.map((name) => `@${name}`).join(", ")}) : none`;
  expect(isRead(...HEAD, ...inputs, commit("a", "b"), "output a @a", "output b @b", loss)).toBe(
    true,
  );
  expect(isRead(...HEAD, ...inputs, commit("a"), "output a @a", loss)).toBe(false);
  expect(isRead(...HEAD, ...inputs, commit("b"), "output b @b", loss)).toBe(false);
});

describe("a section (6.2 to 6.5)", () => {
  const SECTION = [
    "tallystick program 2",
    "contract ordered/1-draft.1",
    "input batch batch.x f32[2]",
    "input state w f32[2]",
  ];
  const tail = (from: number): string[] => [
    `%${from} = tallystick.fold(%${from - 1}){mean=false} : f32[2]`,
    `%${from + 1} = aten.sum(%${from}) : f32[]`,
    `%${from + 2} = tallystick.commit(@w) : none`,
    `output loss %${from + 1}`,
    "output w @w",
  ];
  const product = "%0 = aten.mul.Tensor(@batch.x, @w) : f32[2]";

  test("may have one node, and has one", () => {
    expect(isRead(...SECTION, "micro 1", product, ...tail(1))).toBe(true);
    expect(isRead(...SECTION, "micro 0", product, ...tail(1))).toBe(false);
  });

  test("may be all nodes, and no more", () => {
    const rest = ["%0 = aten.mul.Tensor(@s, @s) : f32[]", "output loss @s"];
    const head = [...SECTION.slice(0, 2), "input state s f32[]"];
    expect(isRead(...head, "micro 1", ...rest)).toBe(true);
    expect(isRead(...head, "micro 2", ...rest)).toBe(false);
  });

  test("of no node is none, also where nothing is folded", () => {
    const head = [...SECTION.slice(0, 2), "input state s f32[]"];
    const rest = ["%0 = aten.mul.Tensor(@s, @s) : f32[]", "output loss @s"];
    expect(isRead(...head, "micro 1", ...rest)).toBe(true);
    expect(isRead(...head, "micro 0", ...rest)).toBe(false);
  });

  test("carries values of its own, of the slot's type (6.4)", () => {
    const head = [...SECTION.slice(0, 2), "input state s f32[]", "input state w f32[2]", "micro 2"];
    const rest = [
      "%0 = aten.mul.Tensor(@w, @w) : f32[2]",
      "%1 = aten.sum(%0) : f32[]",
      "%2 = aten.mul.Tensor(@w, @w) : f32[2]",
      "output loss @s",
    ];
    const carries = (name: string, value: string): boolean =>
      isRead(...head, `carry ${name} ${value}`, ...rest);
    expect(carries("w", "%0")).toBe(true);
    expect(carries("s", "%1")).toBe(true);
    expect(carries("s", "%0")).toBe(false);
    expect(carries("w", "%1")).toBe(false);
    expect(carries("w", "@w")).toBe(false);
    expect(carries("w", "%2")).toBe(false);
  });

  test("has no fold and no commit", () => {
    const between = (node: string): string[] => ["micro 2", product, node, ...tail(2)];
    expect(isRead(...SECTION, ...between("%1 = aten.mul.Tensor(%0, %0) : f32[2]"))).toBe(true);
    expect(isRead(...SECTION, ...between("%1 = tallystick.fold(%0){mean=false} : f32[2]"))).toBe(
      false,
    );
    const head = [...SECTION.slice(0, 2), "input state s f32[]"];
    const rest = ["output loss @s", "output s @s"];
    const add = "%0 = aten.mul.Tensor(@s, @s) : f32[]";
    expect(isRead(...head, "micro 1", add, "%1 = tallystick.commit(@s) : none", ...rest)).toBe(
      true,
    );
    expect(isRead(...head, "micro 1", "%0 = tallystick.commit(@s) : none", ...rest)).toBe(false);
  });
});

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

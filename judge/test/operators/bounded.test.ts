import { describe, expect, test } from "vitest";
import { bitsOfF64, numberOf, type Bits } from "../../src/numbers/bits.ts";
import { exactly, roundToF64 } from "../../src/numbers/rounding.ts";
import { boundOf } from "../../src/operators/bounded.ts";
import { callOf, quantityOf } from "../../src/operators/element.ts";
import { Grid } from "../../src/operators/grid.ts";
import type { Direction, Reach } from "../../src/operators/quantity.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";
import { attributeOf, fail, hexOf, read, valueOf, type Tensor } from "./calls.ts";

interface Case {
  contract: string;
  op: string;
  attrs: Record<string, unknown>;
  inputs: { shape: number[]; bits: string[] }[];
  bounds: string[];
  logs: { entries: [number, Direction][]; values: string[]; forged: number[] }[];
}

const TABLE = readTable(jsonOfVectors("operators.json"));
const { cases } = jsonOfVectors("rounded/bounded.json") as { cases: Case[] };

test("beyond an infinity there is no boundary, and an entry towards it is forged (8.7.1)", () => {
  const grid = new Grid(27);
  const [most, infinite] = [2 ** 128 - 2 ** 109, Infinity].map((x) => grid.count(x));
  const [v, limit] = [exactly(2 ** 130), exactly(1)];
  const { n, q } = grid.boundary(most ?? 0, 1) ?? fail("no boundary");
  expect(roundToF64(n, q)).toBe(2 ** 128 - 2 ** 108);
  expect(grid.boundary(infinite ?? 0, 1)).toBeUndefined();
  expect(grid.readsFar(infinite ?? 0, 1, v, limit)).toBe(true);
  expect(grid.readsFar(-(infinite ?? 0), -1, v, limit)).toBe(true);
  expect(grid.readsFar(infinite ?? 0, -1, v, limit)).toBe(false);
});

test("a bound that is negative, infinite or a NaN is the largest number (8.6.2)", () => {
  const largest = 0x1fffffffffffff * 2 ** 971;
  for (const A of [-1, Infinity, NaN]) {
    expect(boundOf(2, [A])).toBe(largest);
    expect(boundOf(2, [A, 1])).toBe(largest);
    expect(boundOf(2, [1, A])).toBe(largest);
  }
  expect(boundOf(2, [0, Infinity])).toBe(largest);
  expect(boundOf(2, [1, 1], Infinity)).toBe(largest);
  expect(boundOf(2, [0])).toBe(0);
});

describe("the bounded form of replay/1 (vectors/rounded/bounded.json)", () => {
  test.each(cases.map((one, k) => [`${k} ${one.op} ${one.contract}`, one] as const))(
    "%s",
    (_, one) => {
      const operator = TABLE.get(one.op) ?? fail(one.op);
      const attributes = new Map(
        Object.entries(one.attrs).map(([name, value]) => [
          name,
          attributeOf(operator.attributes.get(name)?.kind ?? "", value),
        ]),
      );
      const operands = one.inputs.map(({ shape, bits }): Tensor => ({
        dtype: "f32",
        shape,
        elements: bits.map((text) => BigInt(`0x${text}`)),
      }));
      // The shape is of use to products alone, whose output has the columns of the last operand.
      const columns =
        operands.length > 1 ? (operands.at(-1)?.shape.at(-1) ?? 1) : one.bounds.length;
      const shape = [one.bounds.length / columns, columns];
      const given =
        one.op.startsWith("aten.sum") || one.op.startsWith("aten.mean")
          ? [one.bounds.length]
          : shape;
      const call = callOf(operator, attributes, operands, [{ dtype: "f32", shape: given }]);
      const B = Number(/b=([0-9]+)/.exec(one.contract)?.[1] ?? 32);
      const reaches = one.bounds.map((bound, position): Reach => {
        const quantity =
          quantityOf({ family: "bounded", B }, { call, output: 0, position }) ?? fail(one.op);
        if (quantity.kind !== "logged") return fail(quantity.kind);
        const needs: Bits[] = quantity.needs.map((need) => valueOf(need, operands));
        const [record = 0n, ...sums] = needs;
        const first = quantity.needs[1];
        if (record >> 632n === 0n && first?.kind === "tree" && one.op !== "aten.addmm") {
          const numbers = sums.map((bits) => Number(numberOf("f64", bits)));
          const found = boundOf(first.count, numbers);
          expect(hexOf("f64", bitsOfF64(found))).toBe(bound);
        }
        const reach = read(quantity.reach(needs), operands);
        return reach.form === "bounded" ? reach : fail("no bounded form");
      });
      for (const log of one.logs) {
        const entries = new Map(log.entries);
        const values = reaches.map((reach, position) =>
          hexOf("f32", reach.due(entries.get(position))),
        );
        expect(values).toEqual(log.values);
        const forged = log.entries
          .filter(([position, direction]) => reaches[position]?.isForged(direction) !== false)
          .map(([position]) => position);
        expect(forged).toEqual(log.forged);
      }
    },
  );
});

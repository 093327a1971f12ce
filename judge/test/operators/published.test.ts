import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { bitsOf, f32OfBits, f64OfBits, numberOf } from "../../src/numbers/bits.ts";
import { bitsOfPair, Pair } from "../../src/numbers/pairs.ts";
import { exactly } from "../../src/numbers/rounding.ts";
import { callOf, quantityOf } from "../../src/operators/element.ts";
import type { Attribute } from "../../src/operators/attributes.ts";
import { Grid } from "../../src/operators/grid.ts";
import { localReal } from "../../src/operators/lifted.ts";
import { loggedPair, reachOf } from "../../src/operators/published.ts";
import type { Quantity } from "../../src/operators/quantity.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail, hexOf, read, valueOf, type Tensor } from "./calls.ts";
import { goldenCalls } from "./golden.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
const { calls } = jsonOfVectors("real/published.json") as { calls: Record<string, string> };
const { reach, values } = jsonOfVectors("rounded/published.json") as {
  reach: { b: number; x: string; E: string; V: [string, string][]; forged: number[] }[];
  values: { b: number; x: string; values: string[] }[];
};
const GROUPS = [...new Set(Object.keys(calls).map((name) => name.split("[")[0] ?? ""))];

/** The 16 bytes of a stated pair. */
function bytesOf(pair: bigint): Buffer {
  return Buffer.from(pair.toString(16).padStart(32, "0"), "hex").reverse();
}

describe("pairs of published elements (vectors/real)", () => {
  test.each(GROUPS)("%s", (group) => {
    const wrong: string[] = [];
    goldenCalls(`kernels/${group}`, TABLE).forEach(({ call, operands, outputs }, ordinal) => {
      const name = `${group}[${ordinal}] ${call.operator.name}`;
      const hash = createHash("sha256");
      let stated = 0;
      outputs.forEach((tensor, output) => {
        const count = tensor.elements.length;
        for (let position = 0; position < count; position += Math.max(1, Math.floor(count / 24))) {
          const quantity =
            quantityOf({ family: "published", B: 32 }, { call, output, position }) ?? fail(name);
          if (quantity.kind !== "logged" || quantity.name !== "R(x)") continue;
          for (const need of quantity.needs) {
            if (need.dtype !== "real") continue;
            hash.update(bytesOf(valueOf(need, operands)));
            stated += 1;
          }
        }
      });
      const due = calls[name];
      if (due === undefined ? stated > 0 : hash.digest("hex") !== due) wrong.push(name);
    });
    expect(wrong).toEqual([]);
  });
});

describe("vectors/rounded/published.json", () => {
  test("reach: V(c), and forged entries", () => {
    let strangers = 0;
    for (const { b, x, E, V, forged } of reach) {
      const [v, bound] = [x, E].map((bits) => exactly(f64OfBits(BigInt(`0x${bits}`))));
      const found = reachOf(v ?? fail(x), bound ?? fail(E), b);
      expect(([0, 1, 2] as const).filter((entry) => found.isForged(entry))).toEqual(forged);
      const grid = new Grid(b);
      V.forEach((ends, entry) => {
        const [least = 0, greatest = 0] = ends.map((text) =>
          grid.count(f32OfBits(parseInt(text, 16))),
        );
        const holds = (count: number): boolean =>
          found.holds(bitsOf("f32", grid.element(count)), entry as 0 | 1 | 2);
        expect([least, greatest].map(holds)).toEqual([true, true]);
        if (entry === 1) expect(found.isChoice).toBe(least < greatest);
        expect(holds(least - 1) || holds(greatest + 1)).toBe(false);
        // A number between the ends that is no element.
        const bits = bitsOf("f32", grid.element(greatest > 0 ? greatest : least));
        if (b < 32 && least < greatest) {
          expect(found.holds(bits - 1n, entry as 0 | 1 | 2)).toBe(false);
          strangers += 1;
        }
      });
    }
    expect(strangers).toBeGreaterThan(0);
  });

  test("values: rev(x, c) towards either side", () => {
    for (const { b, x, values: due } of values) {
      const number = f64OfBits(BigInt(`0x${x}`));
      if (!Number.isFinite(number)) continue;
      const grid = new Grid(b);
      const found = ([0, 1, 2] as const).map((entry) =>
        grid.element(grid.towards(exactly(number), entry)),
      );
      // A zero has r's sign there, and none here.
      expect(found.map((one) => hexOf("f32", bitsOf("f32", one)))).toEqual(
        due.map((text) => (text === "80000000" ? "00000000" : text)),
      );
    }
  });
});

const tensor = (shape: readonly number[], values: readonly number[]): Tensor => ({
  dtype: "f32",
  shape,
  elements: values.map((value) => bitsOf("f32", value)),
});

/** The quantity of an element of an operator's only or first output. */
function quantity(
  family: "ordered" | "published",
  name: string,
  attributes: Readonly<Record<string, Attribute>>,
  operands: readonly (Tensor | null)[],
  shape: readonly number[],
): Quantity {
  const call = callOf(
    TABLE.get(name) ?? fail(name),
    new Map(Object.entries(attributes)),
    operands,
    [{ dtype: "f32", shape }],
  );
  const contract = family === "ordered" ? { family } : { family, B: 27 };
  return (
    quantityOf(contract, { call, output: 0, position: 1 % Math.max(1, shape.length) }) ?? fail(name)
  );
}

describe("no reach (OPENING 9.4)", () => {
  const bitsOfReach = (logged: Quantity, needs: readonly bigint[]): bigint | undefined => {
    if (logged.kind !== "logged") return fail(logged.kind);
    const reach = read(logged.reach(needs), []);
    return reach.form === "none" ? (reach.value ?? fail("no value")) : undefined;
  };

  test("of a pair that is not finite", () => {
    // eslint-disable-next-line require-yield -- nothing is read
    const need = localReal("x", [], function* () {
      return new Pair(1);
    });
    const of = (x: number, e: number): bigint | undefined =>
      bitsOfReach(loggedPair(need, 27), [bitsOfPair(new Pair(x, e))]);
    expect(of(0.1, Infinity)).toBe(bitsOf("f32", Math.fround(0.1)));
    expect(of(0.1, NaN)).toBe(bitsOf("f32", Math.fround(0.1)));
    expect(of(-Infinity, 0)).toBe(bitsOf("f32", -Infinity));
    expect(of(NaN, 0)).toBe(bitsOf("f32", NaN));
    expect(of(0.1, 0)).toBeUndefined();
    expect(of(0.1, 2 ** 200)).toBeUndefined();
  });

  test.each([
    [[1, NaN], NaN],
    [[Infinity, 1], Infinity],
    [[-Infinity, 1], -Infinity],
    [[Infinity, -Infinity], NaN],
  ])("of a record with flags: the sum of %j", (values, due) => {
    const operands = [tensor([2], values)];
    const logged = quantity("published", "aten.sum", {}, operands, []);
    const needs = logged.needs.map((need) => valueOf(need, operands));
    const found = numberOf("f32", bitsOfReach(logged, needs) ?? fail("a reach"));
    expect(found).toBe(due);
  });
});

test("a lifted quantity has its own name, and `x` where 10.9 or randomness makes the number", () => {
  const x = tensor([2], [1, 2]);
  const key: Tensor = { dtype: "i64", shape: [2], elements: [1n, 2n] };
  const nameOf = (...of: Parameters<typeof quantity>): string | undefined =>
    quantity(...of).needs[0]?.name;
  const norm = { eps: 0.5, normalized_shape: [2n] };
  expect(nameOf("published", "aten.exp", {}, [x], [2])).toBe("x");
  expect(nameOf("published", "tallystick.normal", { draw: 0n, size: [2n] }, [key], [2])).toBe("x");
  expect(nameOf("published", "aten.native_layer_norm", norm, [x, null, null], [2])).toBe("y");
});

describe("R(exact sum) of aten.addmm (9.4)", () => {
  const ones = (...shape: number[]): Tensor =>
    tensor(shape, new Array<number>(shape.reduce((a, b) => a * b)).fill(1));
  const operands = [ones(2), ones(1, 3), ones(3, 2)];
  const reachOfSum = (alpha: number): unknown => {
    const logged = quantity("published", "aten.addmm", { alpha, beta: 1 }, operands, [1, 2]);
    if (logged.kind !== "logged") return fail(logged.kind);
    return read(logged.reach(logged.needs.map((need) => valueOf(need, operands))), operands);
  };

  test("with the last term in the sum", () => {
    expect(reachOfSum(1)).toMatchObject({ form: "published", middle: bitsOf("f32", 4) });
  });

  test("none if more than the last term follows it", () => {
    expect(reachOfSum(2)).toEqual({ form: "none", value: undefined });
  });
});

test("a lifted chain reads its start at link 0 alone (9.3.3)", () => {
  const operands = [
    tensor([3], [1, 2, 3]),
    { dtype: "i64", shape: [3], elements: [0n, 1n, 0n] } as const,
    tensor([3], [4, 5, 6]),
  ];
  const links = quantity("published", "aten.index_add", { dim: 0n }, operands, [3]).needs[0];
  if (links?.kind !== "chain") return fail("no chain");
  const reads = (low: number): string[] => {
    const seen: string[] = [];
    read(links.links(low, 3, 0n, []), operands, (operand, at) => {
      seen.push(`${operand}[${at.join()}]`);
    });
    return seen;
  };
  expect([reads(0), reads(1)]).toEqual([
    ["0[0]", "1[0,1,2]", "2[0,2]"],
    ["1[1,2]", "2[2]"],
  ]);
});

test("a lifted formula makes the same reads, in their order (9.3)", () => {
  const two = (): Tensor => tensor([2, 2], [1, 2, 3, 4]);
  const one = (): Tensor => tensor([2], [1, 2]);
  const calls = [
    ["aten._log_softmax_backward_data", { dim: 1n }, [two(), two()]],
    [
      "aten.native_batch_norm_backward",
      { eps: 0.5, output_mask: [true, false, false], train: true },
      [two(), two(), one(), null, null, one(), one()],
    ],
  ] as const;
  for (const [name, attributes, operands] of calls) {
    const reads = (of: Quantity): unknown[] => {
      if (of.kind !== "local") return fail(of.kind);
      const seen: unknown[] = [];
      read(of.value(of.needs.map(() => 0n)), operands, (...made) => seen.push(made));
      return seen;
    };
    const due = reads(quantity("ordered", name, attributes, operands, [2, 2]));
    const logged = quantity("published", name, attributes, operands, [2, 2]);
    expect(due.length).toBeGreaterThan(1);
    expect(reads(logged.needs[0] ?? fail(name))).toEqual(due);
  }
});

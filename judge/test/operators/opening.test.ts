/** The quantities are those of spec/OPENING.md 6: the test reads its tables. */
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { Attribute, Attributes } from "../../src/operators/attributes.ts";
import type { Call } from "../../src/operators/call.ts";
import { callOf, quantityOf } from "../../src/operators/element.ts";
import { isRefusal, type Quantity } from "../../src/operators/quantity.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail, read, type Tensor } from "./calls.ts";
import { goldenCalls } from "./golden.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
const SPEC = readFileSync(new URL("../../../spec/OPENING.md", import.meta.url), "utf8");
const KERNELS = readdirSync(new URL("../../../vectors/kernels/", import.meta.url))
  .filter((name) => name.endsWith(".json"))
  .map((name) => `kernels/${name.replace(".json", "")}`);

/** The rows of the table of a clause, without the head. */
function rowsOf(clause: string): string[][] {
  const text = SPEC.slice(SPEC.indexOf(`\n${clause} `));
  const rows = /\n\|.*\n\|[-|]*\n((?:\|.*\n)+)/.exec(text)?.[1] ?? fail(`no table in ${clause}`);
  return rows
    .trim()
    .split("\n")
    .map((row) => row.split(" | ").map((cell) => cell.replace(/^\| | \|$/g, "").trim()));
}

const ABBREVIATIONS = new Map(
  rowsOf("6.2").map(([name = "", quantity = ""]) => [bare(name), bare(quantity)]),
);
const TREES = rowsOf("6.3").map(([ops = "", outputs = "", when = "", quantity = ""]) => ({
  ops: ops.split(", ").map(bare),
  outputs: outputs.split(", ").map(Number),
  when,
  quantity: expanded(bare(quantity)),
}));

function bare(text: string): string {
  return text.replaceAll("`", "");
}

function expanded(text: string): string {
  const next = text.replace(/<[a-z_0-9 ]+>/g, (name) => ABBREVIATIONS.get(name) ?? fail(name));
  return next === text ? text : expanded(next);
}

/** Whether a condition of 6.1 holds. */
function holds(when: string, call: Call): boolean {
  if (when === "-") return true;
  return when.split(" and ").every((one) => {
    const [, operand, empty] = /^operand ([0-9])( empty)?$/.exec(one) ?? [];
    if (operand !== undefined) {
      const type = call.operands[Number(operand)];
      return empty === undefined ? type != null : type?.shape.includes(0) === true;
    }
    const [name = "", value = ""] = one.split(" = ");
    const held = call.attributes.get(name);
    return typeof held === "number" ? held === Number(value) : String(held) === value;
  });
}

/** A quantity in the notation of OPENING 2.3. */
function written(quantity: Quantity): string {
  const { kind, dtype, name, needs } = quantity;
  const word = quantity.kind === "extremum" ? ` ${quantity.extreme}` : "";
  const own = `${kind} ${dtype} "${name}"${word}`;
  const [first, ...more] = needs.map(written);
  if (name === "out" && first?.includes('"x[0]"')) {
    return `${own} (${first.replace("[0]", "[i]")} …)`;
  }
  const below = first === undefined ? "" : ` (${[first, ...more].join(", ")})`;
  if (quantity.kind !== "terms") return own + below;
  const term = quantity.count === 0 ? "" : written(quantity.term(0)).replace("[0]", "[i]");
  return `${own}${below} [${term}]`;
}

/** The position in the mask of an output that exists (6.1). */
function inMask(attributes: Attributes, output: number): number {
  const mask = attributes.get("output_mask") as readonly boolean[] | undefined;
  return mask === undefined ? output : ([...mask.keys()].filter((k) => mask[k])[output] ?? -1);
}

describe("OPENING 6.3", () => {
  const met = new Set<number>();

  test.each(KERNELS)("the quantities of %s", (path) => {
    for (const { name, call, outputs } of goldenCalls(path, TABLE)) {
      outputs.forEach((tensor, output) => {
        if (tensor.elements.length === 0) return;
        const at = inMask(call.attributes, output);
        const row = TREES.findIndex(
          ({ ops, outputs: own, when }) =>
            ops.includes(call.operator.name) && own.includes(at) && holds(when, call),
        );
        met.add(row);
        const due = TREES[row]?.quantity.replaceAll(" T ", ` ${tensor.dtype} `);
        const position = tensor.elements.length - 1;
        const quantity = quantityOf({ family: "ordered" }, { call, output, position });
        const found = written(quantity ?? fail(name));
        if (found.includes("[]")) return; // a sum of no quantities names none
        expect(found, name).toBe(due);
      });
    }
  });

  test("every row is met", () => {
    const missing = TREES.filter((_, row) => !met.has(row)).map(({ ops }) => ops[0]);
    expect(missing).toEqual([]);
  });
});

/** A tensor of zeros. */
const zeros = (dtype: "f32" | "i64", ...shape: number[]): Tensor => ({
  dtype,
  shape,
  elements: Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => 0n),
});
const indices = (...numbers: number[]): Tensor => ({
  dtype: "i64",
  shape: [numbers.length],
  elements: numbers.map((n) => BigInt.asUintN(64, BigInt(n))),
});

/** The quantity of an element of the only output. */
function quantity(
  op: string,
  attributes: Record<string, Attribute>,
  operands: (Tensor | null)[],
  shape: number[],
  position: number,
  dtype: Tensor["dtype"] = "f32",
): Quantity {
  const operator = TABLE.get(op) ?? fail(op);
  const given = new Map(Object.entries(attributes));
  const call = callOf(operator, given, operands, [{ dtype, shape }]);
  return quantityOf({ family: "ordered" }, { call, output: 0, position }) ?? fail(op);
}

/** The reads of what is executed, in order, as `operand[positions]`. */
function reads(quantity: Quantity, operands: (Tensor | null)[], low = 0, high = 1): string {
  const seen: string[] = [];
  const see = (operand: number, positions: readonly bigint[]): void => {
    seen.push(`${operand}[${positions.join()}]`);
  };
  if (quantity.kind === "local") read(quantity.value(quantity.needs.map(() => 0n)), operands, see);
  else if (quantity.kind === "chain") read(quantity.links(low, high, 0n, []), operands, see);
  else if (quantity.kind === "tree") read(quantity.terms(low, high, []), operands, see);
  else fail(quantity.kind);
  return seen.join(" ");
}

describe("reads in the order of OPENING 7", () => {
  test("a link reads one factor for all its terms, then the other (7.3.1)", () => {
    const operands = [zeros("f32", 2, 3), zeros("f32", 3, 2)];
    const dot = quantity("aten.mm", {}, operands, [2, 2], 3);
    expect(reads(dot, operands)).toBe("0[3,4,5] 1[1,3,5]");
  });

  test("of a weight gradient the tap is read first, and none outside (7.3.6)", () => {
    const operands = [zeros("f32", 1, 1, 2, 2), zeros("f32", 1, 1, 2, 2), zeros("f32", 1, 1, 1, 1)];
    const two = (n: bigint): bigint[] => [n, n];
    const attributes = {
      stride: two(1n),
      padding: two(0n),
      dilation: two(1n),
      transposed: false,
      output_padding: two(0n),
      groups: 1n,
      output_mask: [false, true, false],
    };
    const gradient = quantity("aten.convolution_backward", attributes, operands, [1, 1, 1, 1], 0);
    expect(reads(gradient, operands)).toBe("1[0,1,2,3] 0[0,1,2,3]");
  });

  test("a scatter reads its start, all indices, then what goes there (7.5)", () => {
    const operands = [zeros("f32", 3), indices(1, 0, 1), zeros("f32", 3)];
    const sum = quantity("aten.index_add", { dim: 0n }, operands, [3], 1);
    expect(reads(sum, operands, 0, 3)).toBe("0[1] 1[0,1,2] 2[0,2]");
    expect(reads(sum, operands, 1, 3)).toBe("1[1,2] 2[2]");
    const last = quantity("aten.scatter.src", { dim: 0n }, operands, [3], 1);
    expect(reads(last, operands, 0, 4)).toBe("0[1] 1[0,1,2] 2[2]");
    expect(reads(last, operands, 2, 3)).toBe("1[1]");
  });

  test("a loss reads the target, and the element only where the row counts (7.9)", () => {
    const operands = [zeros("f32", 2, 3), indices(2, -100)];
    const attributes = { ignore_index: -100n, reduction: "none" };
    const [first, second] = [0, 1].map((row) =>
      quantity("aten.nll_loss_forward", attributes, operands, [2], row),
    );
    expect(reads(first ?? fail(""), operands)).toBe("1[0] 0[2]");
    expect(reads(second ?? fail(""), operands)).toBe("1[1]");
  });

  test("every operand of a form is read, in order (7.1.1)", () => {
    const operands = [zeros("f32", 2, 1), zeros("f32", 3)];
    const product = quantity("aten.mul.Tensor", {}, operands, [2, 3], 4);
    expect(reads(product, operands)).toBe("0[1] 1[1]");
  });
});

describe("refusals (OPENING 5.6)", () => {
  const outcome = (one: Quantity, operands: (Tensor | null)[]): unknown => {
    const found: string[] = [];
    try {
      reads(one, operands, 0, one.kind === "chain" ? one.count : 1);
    } catch (error) {
      found.push((error as Error).constructor.name);
    }
    return found.join() || "a value";
  };
  const key = (...numbers: number[]): Tensor[] => [indices(...numbers)];
  const numbers = [zeros("f32", 3), indices(0, 3)];
  test.each([
    ["an index", quantity("aten.index_select", { dim: 0n }, numbers, [2], 1), numbers, "Refused"],
    ["no index", quantity("aten.index_select", { dim: 0n }, numbers, [2], 0), numbers, "a value"],
    [
      "a divisor 0",
      quantity("aten.floor_divide", {}, key(1, 0).concat(key(0, 0)), [2], 0, "i64"),
      key(1, 0).concat(key(0, 0)),
      "Refused",
    ],
    [
      "a seed below 0",
      quantity(
        "tallystick.uniform",
        { draw: 0n, shape: [1n], low: 0, high: 1 },
        key(-1, 0),
        [1],
        0,
      ),
      key(-1, 0),
      "Refused",
    ],
    [
      "a step",
      quantity(
        "tallystick.uniform",
        { draw: 0n, shape: [1n], low: 0, high: 1 },
        key(1, 2 ** 32),
        [1],
        0,
      ),
      key(1, 2 ** 32),
      "Refused",
    ],
    [
      "a source",
      quantity(
        "aten.index_add",
        { dim: 0n },
        [zeros("f32", 3), indices(0, -1), zeros("f32", 2)],
        [3],
        0,
      ),
      [zeros("f32", 3), indices(0, -1), zeros("f32", 2)],
      "Refused",
    ],
  ] as const)("%s is told from a value", (_, one, operands, due) => {
    expect(outcome(one, [...operands])).toBe(due);
  });

  test("the noise's place is read and refused before the key (7.10.2)", () => {
    const attributes = { classes: 3n, draw: 0n };
    const operands = [indices(-1, 0), indices(2, 2 ** 32)];
    const noise = quantity("tallystick.gumbel", attributes, operands, [2, 3], 4);
    const reading = noise.kind === "local" ? noise.value([]) : fail(noise.kind);
    expect(reading.next().value).toEqual({ operand: 1, positions: [1n] });
    expect(isRefusal(reading.next([2n ** 32n]).value)).toBe(true);
    const again = noise.kind === "local" ? noise.value([]) : fail(noise.kind);
    again.next();
    expect(again.next([5n]).value).toEqual({ operand: 0, positions: [0n, 1n] });
    expect(isRefusal(again.next([2n ** 64n - 1n, 0n]).value)).toBe(true);
  });

  test("a refusal is an outcome, and no reading follows it", () => {
    const operands = [zeros("f32", 3), indices(3)];
    const one = quantity("aten.index_select", { dim: 0n }, operands, [1], 0);
    const reading = one.kind === "local" ? one.value([]) : fail(one.kind);
    expect(reading.next().value).toEqual({ operand: 1, positions: [0n] });
    const step = reading.next([3n]);
    expect(step.done).toBe(true);
    expect(isRefusal(step.value)).toBe(true);
  });
});

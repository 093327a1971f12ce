import { describe, expect, test } from "vitest";
import { bitsOf, numberOf, type Dtype } from "../../src/numbers/bits.ts";
import { floatOfText, holds } from "../../src/operators/attributes.ts";
import { Operands, RefusedByClause, type Call } from "../../src/operators/call.ts";
import { Evaluation } from "../../src/operators/graph.ts";
import { readNode } from "../../src/operators/nodes.ts";
import { Opened } from "../../src/operators/parts.ts";
import { partOf } from "../../src/operators/element.ts";
import { primitive } from "../../src/operators/primitives.ts";
import { readParts } from "../../src/operators/read.ts";
import type { Node, Parts } from "../../src/operators/table.ts";
import { jsonOfVectors } from "../vectors.ts";
import { attributeOf, fail, hexOf, read, Refused, valueOf, type Tensor } from "./calls.ts";

type Kinds = Record<string, { kind: string }>;
type Given = [Dtype, number[], string[]?] | null;
interface CallText {
  attributes: Record<string, unknown>;
  inputs: Given[];
}
interface Values {
  primitives: { kind: string; dtype: Dtype; of: Dtype[]; rows: string[][]; refused?: unknown }[];
  leaves: { kind: string; dtype: Dtype; rows: [unknown, string][] }[];
  conditions: {
    condition: { is: string; equal: unknown } | { has: string };
    kinds: Record<string, string>;
    attributes: Record<string, unknown>;
    given: string[];
    holds: boolean;
  }[];
}
interface Group<C extends CallText> {
  what: string;
  operands: string[];
  attributes: Kinds;
  calls: C[];
}
type Positions = Group<
  CallText & { output: [Dtype, number[]]; terms?: number; gives: unknown[] }
> & {
  nodes: unknown[];
  root: number;
};
type Quantities = Group<CallText & { outputs: [Dtype, number[]][]; gives: string[][] }> & {
  parts: unknown;
};

const values = jsonOfVectors("language/values.json") as Values;
const positions = (jsonOfVectors("language/positions.json") as { groups: Positions[] }).groups;
const quantities = (jsonOfVectors("language/quantities.json") as { groups: Quantities[] }).groups;

const tensorOf = ([dtype, shape, bits]: [Dtype, number[], string[]?]): Tensor => ({
  dtype,
  shape,
  elements: (bits ?? []).map((text) => BigInt(`0x${text}`)),
});

function callOf(
  group: Pick<Group<CallText>, "operands" | "attributes">,
  call: CallText,
  outputs: [Dtype, number[]][],
): { call: Call; operands: (Tensor | null)[] } {
  const operands = call.inputs.map((one) => (one === null ? null : tensorOf(one)));
  const attributes = new Map(
    Object.entries(call.attributes).map(([name, value]) => [
      name,
      attributeOf(group.attributes[name]?.kind ?? "", value),
    ]),
  );
  const names = group.operands.map((name) => name.replace(/[?*]$/, ""));
  const operator = {
    ...{ name: "", clause: "", class: "", attributes: new Map() },
    ...{ operands: names, optional: new Set<string>(), repeated: false },
  };
  const types = outputs.map(([dtype, shape]) => ({ dtype, shape }));
  return { call: { operator, attributes, operands, outputs: types }, operands };
}

/** The nodes of a graph, from their texts. */
const nodesOf = (...texts: unknown[]): Node[] =>
  texts.map((text, k) => readNode(text, `node ${k}`, k, 0));

/** The value of one node. */
function evaluated(nodes: Node[], call: Call, output = 0): Evaluation {
  const operands = new Operands(call);
  const part = (): never => fail("no parts");
  return new Evaluation({ call, operands, output, nodes, element: 0n, terms: 0n, part });
}

test("a read of several operands at once: one element of each", () => {
  const group = { operands: ["x*"], attributes: {} };
  const inputs: Given[] = [
    ["f32", [2]],
    ["f32", [3]],
  ];
  const { call } = callOf(group, { attributes: {}, inputs }, [["f32", []]]);
  const operands = inputs.map((_, k): Tensor => ({
    dtype: "f32",
    shape: [3],
    elements: [10, 20, 30].map((x) => bitsOf("f32", x + k)),
  }));
  const seen: string[] = [];
  const found = read(
    evaluated([], call).elementsAt("f32", [1n, 0n], [2n, 1n]),
    operands,
    (operand, at) => {
      seen.push(`${operand}[${at.join()}]`);
    },
  );
  expect([seen, found]).toEqual([
    ["1[2]", "0[1]"],
    [31, 20],
  ]);
});

test("a whole number as one of fewer bits is taken modulo these (NUMERICS 10.7)", () => {
  const of = (dtype: "i64" | "i32" | "u8", x: bigint): unknown => primitive("convert", dtype, [x]);
  expect(of("i32", 2n ** 31n + 5n)).toBe(5 - 2 ** 31);
  expect(of("u8", 261n)).toBe(5);
  expect(of("i64", 2n ** 63n)).toBe(-(2n ** 63n));
});

test("floats of a text that is none (PROGRAM 2.5)", () => {
  const texts = ["", "1.0", "0x1.0", "0x1.gp+0", "0x.8p+0", "0x1.0p+123456", "Inf", " nan"];
  expect(texts.map(floatOfText)).toEqual(texts.map(() => undefined));
});

describe("vectors/language", () => {
  test.each(values.primitives)("$kind of $of gives $dtype", ({ kind, dtype, of, rows }) => {
    const wrong = rows.filter((row) => {
      const numbers = of.map((type, k) => numberOf(type, BigInt(`0x${row[k] ?? ""}`)));
      return hexOf(dtype, bitsOf(dtype, primitive(kind, dtype, numbers))) !== row.at(-1);
    });
    expect(rows.length).toBeGreaterThan(0);
    expect(wrong).toEqual([]);
  });

  test.each(values.leaves)("$kind as $dtype", ({ kind, dtype, rows }) => {
    for (const [given, want] of rows) {
      const text = {
        attribute: { kind, dtype, name: "a" },
        size: { kind, dtype, name: "x" },
        constant: { kind, dtype, number: given },
      }[kind];
      const node = readNode(text, "node", 0);
      // Some are bigints: sizes beyond 2^53, which no tensor has, but the word takes.
      const inputs: Given[] = kind === "size" ? [["f32", [given as number]]] : [];
      const attributes = kind === "attribute" ? { a: given } : {};
      const group = { operands: ["x"], attributes: { a: { kind: "float" } } };
      const { call } = callOf(group, { attributes, inputs }, [["f32", []]]);
      const found = read(evaluated([node], call).single(0), []);
      expect(hexOf(dtype, bitsOf(dtype, found))).toBe(want);
    }
  });

  test.each(values.conditions)("$condition of $attributes", (row) => {
    const attributes = new Map(
      Object.entries(row.attributes).map(([name, value]) => [
        name,
        attributeOf(row.kinds[name] ?? "", value),
      ]),
    );
    const { condition } = row;
    const own =
      "has" in condition
        ? condition
        : {
            is: condition.is,
            equal:
              typeof condition.equal === "number"
                ? BigInt(condition.equal)
                : (condition.equal as string | boolean),
          };
    expect(holds(own, attributes, new Set(row.given))).toBe(row.holds);
  });

  test.each(positions)("positions: $what", (group) => {
    const nodes = group.nodes.map((node, k) => readNode(node, `node ${k}`, k, 0));
    for (const given of group.calls) {
      const { call, operands } = callOf(group, given, [given.output]);
      given.gives.forEach((want, element) => {
        const terms =
          given.terms === undefined ? 0n : Array.from({ length: given.terms }, (_, k) => BigInt(k));
        const part = (): never => fail("no parts");
        const scene = { call, operands: new Operands(call), output: 0, nodes, terms, part };
        const evaluation = new Evaluation({ ...scene, element: BigInt(element) });
        const found = (): unknown => {
          try {
            const numbers = read(evaluation.each(group.root), operands).map(String);
            return given.terms === undefined ? numbers[0] : numbers;
          } catch (error) {
            if (error instanceof RefusedByClause) return "refused";
            throw error;
          }
        };
        expect(String(found()), `element ${element}`).toBe(String(want));
      });
    }
  });

  test.each(quantities)("quantities: $what", (group) => {
    const parts: Parts = readParts(group.parts, "parts");
    for (const given of group.calls) {
      const { call, operands } = callOf(group, given, given.outputs);
      given.gives.forEach((elements, output) => {
        const dtype = given.outputs[output]?.[0] ?? "f32";
        elements.forEach((want, element) => {
          const opened = new Opened(call, parts, output, BigInt(element));
          const found = (): string => {
            try {
              return hexOf(dtype, valueOf(opened.quantity(partOf(call, parts, output)), operands));
            } catch (error) {
              if (error instanceof Refused) return "refused";
              throw error;
            }
          };
          expect(found(), `element ${element}`).toBe(want);
        });
      });
    }
  });
});

test("what a choice reads for its terms is read once, and not what was read before", () => {
  const nodes = nodesOf(
    { kind: "term", dtype: "index" },
    { kind: "constant", dtype: "index", number: 1 },
    { kind: "lt", dtype: "bool", of: [0, 1] },
    { kind: "read", dtype: "f32", name: "x", of: [0] },
    { kind: "mul", dtype: "f32", of: [3, 3] },
    { kind: "choice", dtype: "f32", of: [2, 3, 4] },
    { kind: "add", dtype: "f32", of: [3, 5] },
  );
  const group = { operands: ["x"], attributes: {} };
  const given: CallText = {
    attributes: {},
    inputs: [["f32", [3], ["40000000", "40400000", "40800000"]]],
  };
  const { call, operands } = callOf(group, given, [["f32", [3]]]);
  const part = (): never => fail("no parts");
  const scene = { call, operands: new Operands(call), output: 0, nodes, element: 0n, part };
  const seen = (root: number): unknown => {
    const reads: string[] = [];
    const evaluation = new Evaluation({ ...scene, terms: [0n, 1n, 2n] });
    const values = read(evaluation.each(root), operands, (operand, positions) => {
      reads.push(`${operand}[${positions.join()}]`);
    });
    return [values, reads.join(" ")];
  };
  expect(seen(5)).toEqual([[2, 9, 16], "0[0] 0[1,2]"]);
  expect(seen(6)).toEqual([[4, 12, 20], "0[0,1,2]"]);
});

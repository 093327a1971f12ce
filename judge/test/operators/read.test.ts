import { describe, expect, test } from "vitest";
import { RefusedError } from "../../src/errors.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";

type Json = Record<string, unknown>;
const TABLE = jsonOfVectors("operators.json") as { format: string; operators: Json[] };

/** A table of one operator alone. */
const some = (name: string): { format: string; operators: Json[] } =>
  structuredClone({
    ...TABLE,
    operators: TABLE.operators.filter((one) => one["name"] === name),
  });

/** The first node or part of these facts. */
function first(entry: Json, facts: Json): Json {
  const graphs = [entry["forms"] ?? [], Object.values((entry["parts"] ?? {}) as Json)].flat();
  for (const graph of graphs as { nodes: Json[]; parts?: Json[] }[]) {
    for (const one of [...graph.nodes, ...(graph.parts ?? [])]) {
      if (Object.entries(facts).every(([name, value]) => one[name] === value)) return one;
    }
  }
  throw new Error(JSON.stringify(facts));
}

type Damage = [string, string, (entry: Json) => void];

/** The change of the first node or part of these facts. */
const on = (what: string, op: string, change: (one: Json) => void, facts: Json): Damage => [
  what,
  op,
  (entry) => {
    change(first(entry, facts));
  },
];
const set =
  (changes: Json) =>
  (one: Json): void => {
    Object.assign(one, changes);
  };
const drop =
  (...names: string[]) =>
  (one: Json): void => {
    for (const name of names) Reflect.deleteProperty(one, name);
  };
const attribute =
  (name: string, change: (rule: Json) => void) =>
  (entry: Json): void => {
    change((entry["attributes"] as Record<string, Json>)[name] ?? {});
  };
const form =
  (change: (one: Json) => void) =>
  (entry: Json): void => {
    change((entry["forms"] as Json[])[0] ?? {});
  };

/** What tests/vectors/test_operator_schema.py damages, and what a schema cannot say. */
const DAMAGES: Damage[] = [
  ["an operator without a clause", "aten.neg", drop("clause")],
  ["an operator of no contract", "aten.neg", set({ contracts: [] })],
  ["a contract twice", "aten.neg", set({ contracts: ["ordered/1", "ordered/1"] })],
  ["a contract with its draft", "aten.neg", set({ contracts: ["ordered/1-draft.1"] })],
  ["a contract that stands alone", "aten.neg", set({ contracts: "ordered/1" })],
  ["an operator with a member of its own", "aten.neg", set({ note: "" })],
  ["an unknown class", "aten.neg", set({ class: "other" })],
  ["an operator without values", "aten.neg", drop("forms")],
  ["an unknown kind of attribute", "aten.cumsum", attribute("dim", set({ kind: "axis" }))],
  ["a default of another kind", "aten.addmm", attribute("beta", set({ default: 1 }))],
  ["a default that is no truth value", "aten.amax", attribute("keepdim", set({ default: 0 }))],
  ["a default of no dtype", "aten.arange", attribute("dtype", set({ default: "f8" }))],
  ["a default that is optional", "aten.addmm", attribute("beta", set({ optional: true }))],
  ["a form without outputs", "aten.neg", form(drop("outputs"))],
  ["a form of an unknown dtype", "aten.neg", form(set({ dtypes: ["f8"] }))],
  ["a form under a condition of nothing", "aten.neg", form(set({ when: null }))],
  ["terms that are no forms", "aten.mse_loss", set({ terms: [{}] })],
  ["a part that is nothing", "aten.sum", (entry) => {
    const [parts] = Object.values(entry["parts"] as Record<string, Json>);
    set({ parts: [null] })(parts ?? {});
  }],
  ["a refusal without words", "aten.floor_divide", form(drop("why"))],
  ["parts of an unknown dtype", "aten.sum", (entry) => {
    const parts = entry["parts"] as Json;
    parts["f8"] = parts["f32"];
  }],
  on("a dot of one factor", "aten.mm", (dot) => (dot["factors"] as Json[]).pop(), { kind: "dot" }),
  on("a factor without a group", "aten.convolution", (dot) => {
    drop("member")((dot["factors"] as Json[])[0] ?? {});
  }, { kind: "dot" }),
  on("an unknown kind of node", "aten.neg", set({ kind: "minus" }), { kind: "neg" }),
  on("a primitive of a wrong dtype", "aten.neg", set({ dtype: "u8" }), { kind: "neg" }),
  on("a primitive of one more part", "aten.neg", set({ of: [0, 0] }), { kind: "neg" }),
  on("a primitive of nothing", "aten.neg", drop("of"), { kind: "neg" }),
  on("a primitive with a name", "aten.neg", set({ name: "x" }), { kind: "neg" }),
  on("a number below 0", "aten.neg", set({ of: [-1] }), { kind: "neg" }),
  on("a node of itself", "aten.neg", set({ of: [1] }), { kind: "neg" }),
  on("an operand without a name", "aten.neg", drop("name"), { kind: "operand" }),
  on("a constant in decimal", "aten.reciprocal", set({ number: 1 }), { kind: "constant" }),
  on("a whole constant that is a text", "aten.cumsum", set({ number: "0x1.0p+0" }), {
    kind: "constant", dtype: "index",
  }),
  on("a position in a form", "aten.neg", (node) => {
    drop("name")(node);
    set({ kind: "element", dtype: "index" })(node);
  }, { kind: "operand" }),
  on("a position of a number's dtype", "aten.gather", set({ dtype: "i64" }), { kind: "placed" }),
  on("a place without its axis", "aten.gather", set({ of: [0] }), { kind: "placed" }),
  on("a refusal of nothing", "aten.gather", drop("name"), { kind: "inside" }),
  on("a case of two tests", "aten.add.Tensor", set({ has: "alpha" }), { kind: "case" }),
  on("a case of no test", "aten.add.Tensor", drop("is"), { kind: "case" }),
  on("an operand in a part", "aten.gather", set({ kind: "operand" }), {
    kind: "read", dtype: "moved",
  }),
  on("an unknown kind of part", "aten.sum", set({ kind: "sum" }), { kind: "tree" }),
  on("a tree without a count", "aten.sum", drop("count"), { kind: "tree" }),
  on("a tree with a start", "aten.sum", set({ start: 0 }), { kind: "tree" }),
  on("a tree of no node", "aten.sum", set({ value: 1000 }), { kind: "tree" }),
  on("a chain without a start", "aten.cumsum", drop("start"), { kind: "chain" }),
  on("an unknown extreme", "aten.amax", set({ extreme: "most" }), { kind: "extremum" }),
  on("a fold without its values", "tallystick.fold", drop("of"), { kind: "fold" }),
  on("a fold of itself", "tallystick.fold", set({ of: [1] }), { kind: "fold" }),
  on("a fold of no divisor", "tallystick.fold", drop("divisor"), { kind: "fold" }),
  on("an argmax that is no i64", "aten.argmax", set({ dtype: "f32" }), { kind: "extremum" }),
]; // prettier-ignore

describe("the table of operators", () => {
  test("is read", () => {
    expect(readTable(TABLE).size).toBe(TABLE.operators.length);
  });

  test.each(DAMAGES)("%s is refused", (_, op, damage) => {
    const table = some(op);
    expect(readTable(table).size).toBe(1);
    damage(table.operators[0] ?? {});
    expect(() => readTable(table)).toThrow(RefusedError);
  });

  test("another format, no operators, another member and an operator twice are refused", () => {
    const table = some("aten.neg");
    for (const other of [
      { ...table, format: "tallystick-operators/9" },
      { format: table.format },
      { ...table, note: "" },
      { ...table, operators: [] },
      { ...table, operators: [...table.operators, ...table.operators] },
      [],
      null,
    ]) {
      expect(() => readTable(other)).toThrow(RefusedError);
    }
  });
});

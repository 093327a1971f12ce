/**
 * Reads the table of operators from JSON. It refuses what vectors/operators.schema.json refuses,
 * and a node or part that does not come after those that it is made of.
 */
import { refuse } from "../errors.ts";
import type { Dtype } from "../numbers/bits.ts";
import {
  conditionOf,
  FLOAT,
  i64,
  NAME,
  OPERANDS,
  PLAIN,
  readCondition,
  readNode,
} from "./nodes.ts";
import { fields, list, numberBelow, text, truth, word, type Fields } from "./shape.ts";
import type { AttributeRule, Factor, Form, Operator, OperatorTable, Part, Parts } from "./table.ts";

const FORMAT = "tallystick-operators/1";
const OPERATOR = /^(aten|tallystick)\.[A-Za-z0-9_]+(\.[A-Za-z_]+)?$/;
const OPERAND = /^[a-z][a-z0-9_]*[?*]?$/;
const CLAUSE = /^[0-9]+(\.[0-9]+)?(, [0-9]+(\.[0-9]+)?)*$/;
const CONTRACT = /^[a-z]+\/[0-9]+$/;
const CLASSES = [
  "composite", "dot", "elementwise", "fold", "move", "optimizer", "random", "reduction", "scatter",
] as const; // prettier-ignore
const KINDS = ["int", "float", "bool", "str", "ints", "bools", "dtype"] as const;
const MOVABLE = [...PLAIN, "moved"] as const;

/** The table that a parsed JSON file holds. */
export function readTable(value: unknown): OperatorTable {
  const held = fields(value, "the table", ["format", "operators"]);
  if (held["format"] !== FORMAT) throw refuse(`the table's format is not ${FORMAT}`);
  const operators = list(held["operators"], "operators", readOperator, 1);
  const table = new Map(operators.map((operator) => [operator.name, operator]));
  if (table.size !== operators.length) throw refuse("an operator stands twice");
  return table;
}

function readOperator(value: unknown, where: string): Operator {
  const held = fields(
    value,
    where,
    ["name", "clause", "class", "operands", "attributes"],
    ["forms", "terms", "parts", "masked_by", "rounded", "real_clause", "contracts"],
  );
  const name = text(held["name"], `${where}.name`, OPERATOR);
  const operands = list(held["operands"], name, (one, at) => text(one, at, OPERAND));
  if (new Set(operands).size !== operands.length) throw refuse(`${name} has an operand twice`);
  if ("forms" in held === "parts" in held) throw refuse(`${name} has not forms or parts`);
  const wants = { terms: "parts", masked_by: "parts", real_clause: "forms" };
  for (const [member, other] of Object.entries(wants)) {
    if (member in held && !(other in held)) throw refuse(`${name} has ${member} and no ${other}`);
  }
  if ("terms" in held) list(held["terms"], `${name}.terms`, readForm, 1);
  return {
    name,
    clause: text(held["clause"], `${name}.clause`, CLAUSE),
    class: word(held["class"], `${name}.class`, CLASSES),
    operands: operands.map(bare),
    optional: new Set(operands.filter((one) => one.endsWith("?")).map(bare)),
    repeated: operands.at(-1)?.endsWith("*") ?? false,
    attributes: readAttributes(held["attributes"], `${name}.attributes`),
    ...("forms" in held && { forms: list(held["forms"], `${name}.forms`, readForm, 1) }),
    ...("parts" in held && { parts: readDtypes(held["parts"], `${name}.parts`) }),
    ...("masked_by" in held && { maskedBy: text(held["masked_by"], `${name}.masked_by`, NAME) }),
    ...("rounded" in held && {
      rounded: word(held["rounded"], `${name}.rounded`, ["sum", "divided"]),
    }),
    ...("contracts" in held && { contracts: readContracts(held["contracts"], name) }),
    ...("real_clause" in held && {
      realClause: text(held["real_clause"], `${name}.real_clause`, /^10\.9\.[0-9]$/),
    }),
  };
}

function readContracts(value: unknown, where: string): Set<string> {
  const names = list(value, `${where}.contracts`, (one, at) => text(one, at, CONTRACT), 1);
  const found = new Set(names);
  if (found.size !== names.length) throw refuse(`${where} has a contract twice`);
  return found;
}

/** An operand's name without the mark that says how many of it there are. */
const bare = (operand: string): string => operand.replace(/[?*]$/, "");

function readAttributes(value: unknown, where: string): Map<string, AttributeRule> {
  const found = new Map<string, AttributeRule>();
  for (const [name, rule] of Object.entries(objectOf(value, where))) {
    text(name, where, NAME);
    const at = `${where}.${name}`;
    const held = fields(rule, at, ["kind"], ["default", "optional"]);
    const kind = word(held["kind"], `${at}.kind`, KINDS);
    if ("default" in held && "optional" in held)
      throw refuse(`${at} has a default, and needs none`);
    if ("default" in held) readDefault(kind, held["default"], `${at}.default`);
    if ("optional" in held && held["optional"] !== true) throw refuse(`${at}.optional is not true`);
    found.set(name, { kind, optional: "optional" in held });
  }
  return found;
}

/** A default is a caller's affair: a program has every attribute written out (NUMERICS 15.2). */
function readDefault(kind: AttributeRule["kind"], value: unknown, where: string): void {
  if (kind === "int") i64(value, where);
  else if (kind === "float") text(value, where, FLOAT);
  else if (kind === "bool") truth(value, where);
  else if (kind === "str") text(value, where, /^[^]*$/);
  else if (kind === "ints") list(value, where, i64);
  else if (kind === "bools") list(value, where, truth);
  else word(value, where, PLAIN);
}

function readForm(value: unknown, where: string): Form {
  const held = fields(value, where, ["dtypes", "nodes", "outputs"], ["when", "refused", "why"]);
  if ("refused" in held !== "why" in held) throw refuse(`${where} has not both refused and why`);
  const nodes = list(
    held["nodes"],
    `${where}.nodes`,
    (one, at) => readNode(one, at, earlier(at)),
    1,
  );
  const node = numberBelow(nodes.length);
  return {
    dtypes: list(held["dtypes"], `${where}.dtypes`, (one, at) => word(one, at, OPERANDS), 1),
    nodes,
    outputs: list(held["outputs"], `${where}.outputs`, node, 1),
    ...("when" in held && { when: readCondition(held["when"], `${where}.when`) }),
    ...("refused" in held && {
      refused: node(held["refused"], `${where}.refused`),
      why: text(held["why"], `${where}.why`),
    }),
  };
}

/** The number of members before the one that stands at `…[number]`. */
const earlier = (where: string): number => Number(/\[([0-9]+)\]$/.exec(where)?.[1] ?? 0);

function readDtypes(value: unknown, where: string): Map<Dtype | "moved", Parts> {
  const held = objectOf(value, where);
  const found = new Map<Dtype | "moved", Parts>();
  for (const [dtype, parts] of Object.entries(held)) {
    found.set(word(dtype, where, MOVABLE), readParts(parts, `${where}.${dtype}`));
  }
  if (found.size === 0) throw refuse(`${where} is empty`);
  return found;
}

/** Nodes, the quantities over them, and which of these the outputs are. */
export function readParts(value: unknown, where: string): Parts {
  const held = fields(value, where, ["nodes", "parts", "outputs"]);
  const given = held["parts"];
  const count = Array.isArray(given) ? given.length : 0;
  const nodes = list(
    held["nodes"],
    `${where}.nodes`,
    (one, at) => readNode(one, at, earlier(at), count),
    1,
  );
  const parts = list(given, `${where}.parts`, (one, at) => readPart(one, at, nodes.length), 1);
  return {
    nodes,
    parts,
    outputs: list(held["outputs"], `${where}.outputs`, numberBelow(count), 1),
  };
}

const MEMBERS: Readonly<Record<Part["kind"], readonly string[]>> = {
  local: ["value"],
  tree: ["value", "count"],
  extremum: ["value", "count", "extreme"],
  chain: ["value", "count", "start"],
  latest: ["value", "count", "start", "kept"],
  terms: ["count", "of"],
  fold: ["count", "divisor", "of"],
  dot: ["count", "inner", "factors"],
  case: ["of"],
};
const OPTIONAL: Readonly<Partial<Record<Part["kind"], readonly string[]>>> = {
  local: ["first", "reads"],
  tree: ["first", "reads"],
  chain: ["kept"],
  dot: ["reads"],
};
const PART_DTYPES: Readonly<Record<Part["kind"], readonly (Dtype | "moved")[]>> = {
  local: MOVABLE,
  tree: ["f32", "f64", "i64"],
  extremum: ["f32", "i64"],
  chain: ["f32"],
  latest: MOVABLE,
  terms: ["f32", "f64"],
  fold: ["f32"],
  dot: ["f32"],
  case: MOVABLE,
};

function readPart(value: unknown, where: string, nodes: number): Part {
  const given = objectOf(value, where);
  const kind = word(given["kind"], `${where}.kind`, Object.keys(MEMBERS) as Part["kind"][]);
  const asked = kind !== "case" ? [] : "has" in given ? ["has"] : ["is", "equal"];
  const held = fields(
    value,
    where,
    ["kind", "name", "dtype", ...MEMBERS[kind], ...asked],
    OPTIONAL[kind],
  );
  const node = (member: string): number => numberBelow(nodes)(held[member], `${where}.${member}`);
  const part = numberBelow(earlier(where));
  const numbers = (member: string, one: (value: unknown, where: string) => number): number[] =>
    member in held ? list(held[member], `${where}.${member}`, one, 1) : [];
  const only = (): number => list(held["of"], `${where}.of`, part, 1, 1)[0] ?? 0;
  const named = {
    name: text(held["name"], `${where}.name`),
    dtype: word(held["dtype"], `${where}.dtype`, PART_DTYPES[kind]),
    first: numbers("first", part),
    reads: numbers("reads", numberBelow(nodes)),
  };
  switch (kind) {
    case "local":
      return { ...named, kind, value: node("value") };
    case "tree":
      return { ...named, kind, value: node("value"), count: node("count") };
    case "extremum": {
      const extreme = word(held["extreme"], `${where}.extreme`, ["max", "min", "argmax"]);
      if (extreme === "argmax" && named.dtype !== "i64") throw refuse(`${where} is no i64`);
      return { ...named, kind, value: node("value"), count: node("count"), extreme };
    }
    case "chain":
    case "latest": {
      const kept = "kept" in held ? { kept: node("kept") } : {};
      const own = { value: node("value"), count: node("count"), start: node("start") };
      return { ...named, kind, ...own, ...kept };
    }
    case "terms":
      return { ...named, kind, count: node("count"), of: only() };
    case "fold":
      return { ...named, kind, count: node("count"), divisor: node("divisor"), of: only() };
    case "dot": {
      const factor = (one: unknown, at: string): Factor => readFactor(one, at, nodes);
      const [left, right] = list(held["factors"], `${where}.factors`, factor, 2, 2);
      if (left === undefined || right === undefined) throw refuse(`${where} has not two factors`);
      return { ...named, kind, count: node("count"), inner: node("inner"), factors: [left, right] };
    }
    case "case": {
      const [one, other] = list(held["of"], `${where}.of`, part, 2, 2);
      if (one === undefined || other === undefined) throw refuse(`${where} has not two parts`);
      return { ...named, kind, of: [one, other], condition: conditionOf(held, where) };
    }
  }
}

function readFactor(value: unknown, where: string, nodes: number): Factor {
  const held = fields(value, where, ["value", "member", "each"]);
  const node = (member: string): number => numberBelow(nodes)(held[member], `${where}.${member}`);
  return { value: node("value"), member: node("member"), each: node("each") };
}

function objectOf(value: unknown, where: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw refuse(`${where} is no object`);
  }
  return value as Fields;
}

/** Reads nodes of the table's graphs (vectors/operators.md: Nodes), and refuses all others. */
import { refuse } from "../errors.ts";
import type { Condition } from "./attributes.ts";
import { fields, list, numberBelow, text, truth, whole, word, type Fields } from "./shape.ts";
import type { Node, NodeDtype } from "./table.ts";

export const NAME = /^[a-z][a-z0-9_]*$/;
export const FLOAT = /^(-?0x[01]\.[0-9a-f]+p[+-][0-9]+|-?inf|nan)$/;
export const PLAIN = ["f32", "f64", "i64", "i32", "u8", "bool"] as const;
/** The dtypes of a form's operands: a stored one is converted (NUMERICS 1.14). */
export const OPERANDS = [...PLAIN, "bf16", "f16"] as const;
const LEAST = -(1n << 63n);
const MOST = (1n << 63n) - 1n;

export const i64 = (value: unknown, where: string): bigint => whole(value, where, LEAST, MOST);

/** Of a kind of node: its dtypes, its least and greatest number of parts, and whether it has a name. */
interface Rule {
  readonly dtypes: readonly NodeDtype[];
  readonly parts: readonly [number, number];
  readonly named: "no" | "may be" | "yes";
}

/** Rules of several kinds, written in one text. */
function rules(
  kinds: string,
  dtypes: readonly NodeDtype[],
  parts: number | readonly [number, number],
  named: Rule["named"] = "no",
): [string, Rule][] {
  const range = typeof parts === "number" ? ([parts, parts] as const) : parts;
  return kinds.split(", ").map((kind) => [kind, { dtypes, parts: range, named }]);
}

const ALL: readonly NodeDtype[] = [...PLAIN, "index", "moved"];
const FLOATS = ["f32", "f64"] as const;

const PRIMITIVES = [
  ...rules("add, sub, mul", ["f32", "f64", "i64", "index"], 2),
  ...rules("div", FLOATS, 2),
  ...rules("sqrt, neg, abs", FLOATS, 1),
  ...rules("fma", ["f32"], 3),
  ...rules("max, min", ["f32", "i64", "index"], 2),
  ...rules("eq, ne, lt, le, gt, ge", ["bool"], 2),
  ...rules("and, or, xor", ["bool", "i64"], 2),
  ...rules("not", ["bool", "i64"], 1),
  ...rules("floor_divide, left_shift, right_shift", ["i64"], 2),
  ...rules("over, rest", ["index"], 2),
  ...rules("exp, exp2, expm1, log, log2, log1p, tanh, erf, sigmoid, sin, cos, rsqrt", ["f32"], 1),
  ...rules("pow", ["f32"], 2),
  ...rules("convert", [...PLAIN, "index"], 1),
  ...rules("select", ALL, 3),
];

const ANYWHERE = [...PRIMITIVES, ...rules("attribute", ALL, 0, "yes")];

/** Nodes of a form, whose dtypes are those of elements alone. */
const OF_FORMS: ReadonlyMap<string, Rule> = new Map([
  ...ANYWHERE,
  ...rules("operand", OPERANDS, 0, "yes"),
  ...rules("size", ["f32"], 0, "yes"),
]);

/** Nodes of parts. */
const OF_PARTS: ReadonlyMap<string, Rule> = new Map([
  ...ANYWHERE,
  ...rules("element, term, reduced, reduced place", ["index"], 0),
  ...rules("axis, numel, given, product, broadcast", ["index"], 0, "yes"),
  ...rules("extent, inner", ["index"], 1, "may be"),
  ...rules("entry, permuted, reaches", ["index"], 1, "yes"),
  ...rules("placed, inside", ["index"], 2, "yes"),
  ...rules("word", ["index"], 3, "yes"),
  ...rules("choice", ALL, 3),
  ...rules("in reals", FLOATS, 2),
  ...rules("read", [...PLAIN, "moved"], [1, 2], "yes"),
  ...rules("joined", ["moved"], 1, "yes"),
]);

/** A condition, of an object that may have other members. */
export function conditionOf(held: Fields, where: string): Condition {
  if ("has" in held) return { has: text(held["has"], `${where}.has`, NAME) };
  const { equal } = held;
  const is = text(held["is"], `${where}.is`, NAME);
  if (typeof equal === "string" || typeof equal === "boolean") return { is, equal };
  return { is, equal: i64(equal, `${where}.equal`) };
}

/** A condition that stands alone. */
export function readCondition(value: unknown, where: string): Condition {
  const has = typeof value === "object" && value !== null && "has" in value;
  return conditionOf(fields(value, where, has ? ["has"] : ["is", "equal"]), where);
}

function readCase(
  value: Fields,
  where: string,
  earlier: number,
  dtypes: readonly NodeDtype[],
): Node {
  const members = ["kind", "dtype", "of", ...("has" in value ? ["has"] : ["is", "equal"])];
  const held = fields(value, where, members);
  return {
    kind: "case",
    dtype: word(held["dtype"], `${where}.dtype`, dtypes),
    of: list(held["of"], `${where}.of`, numberBelow(earlier), 2, 2),
    condition: conditionOf(held, where),
  };
}

function readConstant(value: Fields, where: string, dtypes: readonly NodeDtype[]): Node {
  const dtype = word(value["dtype"], `${where}.dtype`, dtypes);
  const isFloat = dtype === "f32" || dtype === "f64";
  const held = fields(value, where, ["kind", "dtype", "number"], isFloat ? ["real"] : []);
  const own = { kind: "constant", dtype, of: [] };
  const at = `${where}.number`;
  const { number } = held;
  if (isFloat) {
    const real = "real" in held ? { real: text(held["real"], `${where}.real`, FLOAT) } : {};
    return { ...own, number: text(number, at, FLOAT), ...real };
  }
  if (dtype === "bool") return { ...own, number: truth(number, at) };
  if (dtype === "i32") return { ...own, number: whole(number, at, -(1n << 31n), (1n << 31n) - 1n) };
  if (dtype === "u8") return { ...own, number: whole(number, at, 0n, 255n) };
  if (dtype === "moved") return { ...own, number: whole(number, at, 0n, 1n) };
  return { ...own, number: i64(number, at) };
}

/** Node number `earlier` of a graph. `parts` is the number of quantities beside it, if there are any. */
export function readNode(value: unknown, where: string, earlier: number, parts?: number): Node {
  if (typeof value !== "object" || value === null) throw refuse(`${where} is no object`);
  const given = value as Fields;
  const kind = text(given["kind"], `${where}.kind`);
  const dtypes: readonly NodeDtype[] = parts === undefined ? PLAIN : ALL;
  if (kind === "case") return readCase(given, where, earlier, dtypes);
  if (kind === "constant") return readConstant(given, where, dtypes);
  if (kind === "part" && parts !== undefined) {
    const held = fields(value, where, ["kind", "dtype", "name", "part"]);
    const dtype = word<NodeDtype>(held["dtype"], `${where}.dtype`, [...PLAIN, "moved"]);
    const name = text(held["name"], `${where}.name`);
    return { kind, dtype, of: [], name, part: numberBelow(parts)(held["part"], `${where}.part`) };
  }
  const rule = (parts === undefined ? OF_FORMS : OF_PARTS).get(kind);
  if (rule === undefined) throw refuse(`${where} is of an unknown kind, ${kind}`);
  const [least, most] = rule.parts;
  const needed = ["kind", "dtype"];
  if (most > 0) needed.push("of");
  if (rule.named === "yes") needed.push("name");
  const held = fields(value, where, needed, rule.named === "may be" ? ["name"] : []);
  const dtype = word(held["dtype"], `${where}.dtype`, rule.dtypes);
  if (kind !== "operand" && !dtypes.includes(dtype))
    throw refuse(`${where} has the dtype ${dtype}`);
  const of = most > 0 ? list(held["of"], `${where}.of`, numberBelow(earlier), least, most) : [];
  const name = "name" in held ? { name: text(held["name"], `${where}.name`, NAME) } : {};
  return { kind, dtype, of, ...name };
}

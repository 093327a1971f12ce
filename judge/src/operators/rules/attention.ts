/** Attention (NUMERICS 16.9, 18.2). */
import { textOf, type Node, type Rule, type Shape } from "./node.ts";

const MOST_PLACE = 2n ** 31n - 1n;

/** Demands that every query sees a key (18.2). */
function checkPlaces(node: Node, queries = 0n, keys = 0n): void {
  const first = node.within("first", 0n, MOST_PLACE);
  const window = node.within("window", 0n, MOST_PLACE);
  if (window !== 0n && !node.flag("causal")) throw node.no("has a window, and is not causal");
  if (keys === 0n || (window !== 0n && first + queries - window >= keys)) {
    throw node.no(`has a query that sees none of ${keys} keys`);
  }
}

/** Demands that whole groups of heads share what an operand has, of the same batch. */
function checkGroups(node: Node, heads: Shape, shared: Shape): void {
  const [batch, count = 0n] = heads;
  const [other, groups = 0n] = shared;
  if (batch !== other || groups === 0n || count % groups !== 0n) {
    throw node.no(`has heads of ${textOf(heads)} that do not share ${textOf(shared)}`);
  }
}

const scores: Rule = (node) => {
  const [q, k] = [node.axes("q", 4), node.axes("k", 4)];
  checkGroups(node, q, k);
  if (q[3] !== k[3]) throw node.no(`has rows of different lengths, ${textOf(q)} and ${textOf(k)}`);
  node.match("slopes", q.slice(1, 2));
  checkPlaces(node, q[2], k[2]);
  return [[...q.slice(0, 3), ...k.slice(2, 3)]];
};

const weights: Rule = (node) => {
  const s = node.axes("s", 4);
  node.match("sinks", s.slice(1, 2));
  checkPlaces(node, s[2], s[3]);
  return [s];
};

const values: Rule = (node) => {
  const [p, v] = [node.axes("p", 4), node.axes("v", 4)];
  checkGroups(node, p, v);
  if (p[3] !== v[2]) throw node.no(`has other keys in ${textOf(p)} than in ${textOf(v)}`);
  checkPlaces(node, p[2], p[3]);
  return [[...p.slice(0, 3), ...v.slice(3)]];
};

export const ATTENTION: Readonly<Record<string, Rule>> = {
  "tallystick.attention_scores": scores,
  "tallystick.attention_weights": weights,
  "tallystick.attention_values": values,
};

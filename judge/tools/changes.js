/**
 * The changes that `tools/mutation.js` makes in a source: each is a switch in the text, so that one
 * bundle holds them all. `changed(path, first)` gives the text and what each switch is.
 *
 *     if (c)       if (!__off(n) && (c))            the check is gone
 *     a && b       a && (__off(n) || (b))           one side is left out; likewise ||
 *     a < b        __bound(n, "<", a, b)            the bound is shifted by one
 *     f(x);        { if (!__off(n)) f(x); }         a call whose result is not used is gone
 *
 * An `if` that throws a plain Error states what cannot be, and is no check. A loop's body begins
 * with `__turn();`, so that a loop that a change makes endless is found by its turns.
 */
import { readFileSync } from "node:fs";

import ts from "typescript";

const BOUNDS = [
  ts.SyntaxKind.LessThanToken,
  ts.SyntaxKind.LessThanEqualsToken,
  ts.SyntaxKind.GreaterThanToken,
  ts.SyntaxKind.GreaterThanEqualsToken,
];
const AND = ts.SyntaxKind.AmpersandAmpersandToken;
const OR = ts.SyntaxKind.BarBarToken;

const isAssertion = (node, source) =>
  /^\{?\s*throw new Error\(/.test(node.thenStatement.getText(source));

/** The call of a statement that is nothing but a call, or hands a generator's turn on. */
function calledBy(node) {
  const own = ts.isYieldExpression(node.expression) ? node.expression.expression : node.expression;
  const isCall = own && ts.isCallExpression(own);
  return isCall && own.expression.kind !== ts.SyntaxKind.SuperKeyword ? own : undefined;
}

export function changed(path, first) {
  const text = readFileSync(path, "utf8");
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true);
  const found = [];
  // What is put before a place, outer nodes first, and behind one, inner nodes first.
  const before = new Map();
  const behind = new Map();
  const gone = new Map();
  const wrap = (node, prefix, suffix) => {
    const [start, end] = [node.getStart(source), node.end];
    before.set(start, (before.get(start) ?? "") + prefix);
    behind.set(end, suffix + (behind.get(end) ?? ""));
  };
  const next = (node, kind) => {
    const { line } = source.getLineAndCharacterOfPosition(node.getStart(source));
    const was = node.getText(source).replace(/\s+/g, " ");
    found.push({ path, line: line + 1, kind, was });
    return first + found.length - 1;
  };
  const walk = (node) => {
    if (ts.isIfStatement(node)) {
      if (isAssertion(node, source)) return;
      wrap(node.expression, `!__off(${next(node.expression, "condition")}) && (`, ")");
    }
    if (ts.isExpressionStatement(node) && calledBy(node)) {
      wrap(node, `{ if (!__off(${next(node, "call")})) `, " }");
    }
    if (ts.isBinaryExpression(node)) {
      const { kind } = node.operatorToken;
      for (const side of [node.left, node.right]) {
        if (kind === AND) wrap(side, `(__off(${next(side, "side of &&")}) || (`, "))");
        if (kind === OR) wrap(side, `(!__off(${next(side, "side of ||")}) && (`, "))");
      }
      if (BOUNDS.includes(kind)) {
        wrap(
          node,
          `__bound(${next(node, "bound")}, "${node.operatorToken.getText(source)}", `,
          ")",
        );
        gone.set(node.operatorToken.getStart(source), [node.operatorToken.end, ","]);
      }
    }
    if (ts.isIterationStatement(node, false) && ts.isBlock(node.statement)) {
      const start = node.statement.getStart(source) + 1;
      before.set(start, `${before.get(start) ?? ""} __turn();`);
    }
    ts.forEachChild(node, walk);
  };
  walk(source);
  let out = "";
  for (let at = 0; at <= text.length; at++) {
    out += behind.get(at) ?? "";
    out += before.get(at) ?? "";
    const cut = gone.get(at);
    if (cut) {
      out += cut[1];
      at = cut[0] - 1;
    } else out += text[at] ?? "";
  }
  return { text: out, found };
}

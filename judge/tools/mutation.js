/**
 * Takes one check after the other out of the judge's source, and looks whether the vectors, or else
 * the tests, notice: `node tools/mutation.js FOLDER_OR_FILE... [--json FILE]` (docs/proofs/judge.md).
 *
 * A change makes the condition of an `if` false, leaves out one side of `&&` or `||`, shifts the
 * bound of a comparison by one, or leaves out a call whose result is not used. An `if` that throws a
 * plain Error states what cannot be, and is no check.
 */
import { spawn } from "node:child_process";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import process from "node:process";
import { setTimeout, clearTimeout } from "node:timers";
import { fileURLToPath, pathToFileURL } from "node:url";

import { build } from "esbuild";
import ts from "typescript";

const HERE = join(dirname(fileURLToPath(import.meta.url)), "..");
const SECONDS = 240;
const AT_ONCE = 2;
const BOUNDS = new Map([
  [ts.SyntaxKind.LessThanToken, "<="],
  [ts.SyntaxKind.LessThanEqualsToken, "<"],
  [ts.SyntaxKind.GreaterThanToken, ">="],
  [ts.SyntaxKind.GreaterThanEqualsToken, ">"],
]);
const LOGICAL = [ts.SyntaxKind.AmpersandAmpersandToken, ts.SyntaxKind.BarBarToken];

function files(path) {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path).flatMap((name) => files(join(path, name)));
}

/** An `if` that only says what cannot be. */
function isAssertion(node, source) {
  return /^\{?\s*throw new Error\(/.test(node.thenStatement.getText(source));
}

/** The changes of a file: what is replaced, and by what. */
function changesOf(path) {
  const text = readFileSync(path, "utf8");
  const source = ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true);
  const found = [];
  const change = (node, by, kind) => {
    const start = node.getStart(source);
    const line = source.getLineAndCharacterOfPosition(start).line + 1;
    const was = text.slice(start, node.end);
    if (was !== by) found.push({ path, start, end: node.end, by, kind, line, was });
  };
  const walk = (node) => {
    if (ts.isIfStatement(node)) {
      if (isAssertion(node, source)) return;
      change(node.expression, "false", "condition");
    }
    if (ts.isBinaryExpression(node)) {
      const { kind } = node.operatorToken;
      if (LOGICAL.includes(kind)) {
        change(node, `(${node.left.getText(source)})`, "right side");
        change(node, `(${node.right.getText(source)})`, "left side");
      }
      const bound = BOUNDS.get(kind);
      if (bound !== undefined) change(node.operatorToken, bound, "bound");
    }
    if (ts.isExpressionStatement(node)) {
      const called = ts.isYieldExpression(node.expression)
        ? node.expression.expression
        : node.expression;
      if (
        called &&
        ts.isCallExpression(called) &&
        called.expression.kind !== ts.SyntaxKind.SuperKeyword
      ) {
        change(node, ";", "call");
      }
    }
    ts.forEachChild(node, walk);
  };
  walk(source);
  return found.map((one) => ({ ...one, text }));
}

/** Runs a command; its code, and the last line that it printed. */
function run(command, args, cwd) {
  return new Promise((done) => {
    const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "ignore"] });
    let out = "";
    child.stdout.on("data", (part) => (out += part));
    const timer = setTimeout(() => child.kill("SIGKILL"), SECONDS * 1000);
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      const last = out.trim().split("\n").at(-1) ?? "";
      done({ code, last: signal === null ? last : "it does not end" });
    });
  });
}

/** Whether `tools/check.ts` notices; the words for how. */
async function noticed({ path, start, end, by, text }, folder) {
  const out = join(folder, "check.mjs");
  const changed = text.slice(0, start) + by + text.slice(end);
  const asChanged = {
    name: "changed",
    setup: (of) =>
      of.onLoad({ filter: /\.ts$/ }, (file) => {
        const contents = file.path === path ? changed : readFileSync(file.path, "utf8");
        // Tests read vectors/ by their own place, which a bundle has lost.
        const place = JSON.stringify(pathToFileURL(file.path).href);
        return { contents: contents.replaceAll("import.meta.url", place), loader: "ts" };
      }),
  };
  await build({
    absWorkingDir: HERE,
    entryPoints: ["tools/check.ts"],
    bundle: true,
    platform: "node",
    format: "esm",
    outfile: out,
    logLevel: "silent",
    plugins: [asChanged],
  });
  const { code, last } = await run(process.execPath, ["--max-old-space-size=2048", out], HERE);
  return code === 0 ? null : last || "an error";
}

const args = process.argv.slice(2);
const at = args.indexOf("--json");
const [report] = at < 0 ? [undefined] : args.splice(at, 2).slice(1);
if (args.length === 0) throw new Error("name files or folders of src");
const before = await noticed({ path: "", text: "", start: 0, end: 0, by: "" }, tmpdir());
if (before !== null) throw new Error(`before anything is changed: ${before}`);
const all = args.flatMap((path) => files(join(HERE, path))).flatMap(changesOf);
const waiting = all.entries();
const left = [];
let ended = 0;
async function worker() {
  const folder = mkdtempSync(join(tmpdir(), "mutation-"));
  mkdirSync(folder, { recursive: true });
  for (const [, one] of waiting) {
    const how = await noticed(one, folder);
    ended++;
    if (how === null) left.push(one);
    const place = `${relative(HERE, one.path)}:${one.line}`;
    const was = one.was.replace(/\s+/g, " ").slice(0, 70);
    process.stdout.write(
      `${ended}/${all.length} ${how === null ? "NOT NOTICED" : "noticed"} ${place} ${one.kind}: ${was} | ${how ?? ""}\n`,
    );
  }
}
await Promise.all(Array.from({ length: AT_ONCE }, worker));
const said = left.map(({ path, line, kind, was }) => ({
  file: relative(HERE, path),
  line,
  kind,
  was,
}));
if (report !== undefined) {
  writeFileSync(report, `${JSON.stringify({ changes: all.length, left: said }, null, 2)}\n`);
}
process.stdout.write(`${all.length} changes, ${left.length} not noticed by the vectors\n`);

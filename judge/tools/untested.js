/**
 * Which of the changes that the vectors do not notice (`tools/mutation.js --json REPORT`) a test
 * notices: `node tools/untested.js REPORT TEST... [--json LEFT] [--seconds MOST]`, each change as
 * the source has it now. LEFT is a report of those that no test notices, to be tried on dearer tests.
 * A loop that goes on for MOST (60) seconds without a pause does not end, which a test notices.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

import { createVitest } from "vitest/node";

import { changed } from "./changes.js";

const HERE = join(dirname(fileURLToPath(import.meta.url)), "..");
const args = process.argv.slice(2);
function option(name) {
  const at = args.indexOf(name);
  return at < 0 ? undefined : args.splice(at, 2)[1];
}
const leftover = option("--json");
const most = 1000 * Number(option("--seconds") ?? 60);

/** What the changed text of a file calls, also while it is loaded, with the change made. */
const switches = (number) => `
function __off(change) {
  return change === ${number};
}
function __bound(change, kind, a, b) {
  const isEqual = a === b;
  const own = kind === "<" ? a < b : kind === "<=" ? a <= b : kind === ">" ? a > b : a >= b;
  return isEqual && __off(change) ? !own : own;
}
let __turns = 0;
let __since;
function __turn() {
  if (++__turns % 65536 !== 0) return;
  if (__since === undefined) {
    __since = Date.now();
    setTimeout(() => (__since = undefined));
  } else if (Date.now() - __since > ${most}) throw new Error("it does not end");
}
`;

/** The change that is made now. */
let current;
const plugin = {
  name: "change",
  enforce: "pre",
  transform: (_, id) =>
    id === current?.path ? `${changed(id, 0).text}${switches(current.number)}` : undefined,
};

const vitest = await createVitest(
  "test",
  { root: HERE, watch: false, bail: 1, reporters: [{}] },
  { plugins: [plugin] },
);

/** The number of a change in its file, whose lines may have moved; −1 if it is there no more. */
function numberOf({ file, line, kind, was }) {
  const { found } = changed(join(HERE, file), 0);
  const same = found.filter((one) => one.kind === kind && one.was === was);
  const distance = (one) => Math.abs(one.line - line);
  return found.indexOf(same.sort((a, b) => distance(a) - distance(b))[0]);
}

/** The first test that fails with the change made; null if none does. */
async function noticedBy(change, tests) {
  current = change;
  if (change !== undefined) vitest.invalidateFile(change.path);
  const specifications = await vitest.globTestSpecifications(tests);
  const run = await vitest.runTestSpecifications(specifications);
  if (change !== undefined) vitest.invalidateFile(change.path);
  for (const file of run.testModules) {
    for (const one of file.children.allTests("failed")) return one.fullName;
    if (!file.ok()) return `${file.relativeModuleId}, as a whole`;
  }
  return run.unhandledErrors.length > 0 ? "an error of no test" : null;
}

const [report, ...tests] = args;
if (report === undefined || tests.length === 0) throw new Error("name a report and tests");
const without = await noticedBy(undefined, tests);
if (without !== null) throw new Error(`without a change this fails: ${without}`);
const left = [];
for (const one of JSON.parse(readFileSync(report, "utf8")).left) {
  const number = numberOf(one);
  const change = { path: join(HERE, one.file), number };
  const by = number < 0 ? "it is there no more" : await noticedBy(change, tests);
  if (by === null) left.push(one);
  if (leftover !== undefined) writeFileSync(leftover, `${JSON.stringify({ left }, null, 2)}\n`);
  const place = `${one.file}:${one.line} ${one.kind}: ${one.was.slice(0, 60)}`;
  process.stdout.write(`${place} | ${by ?? "NOT NOTICED"}\n`);
}
process.stdout.write(`${left.length} not noticed\n`);
await vitest.close();

/**
 * Which of the changes that the vectors do not notice (`tools/mutation.js --json REPORT`) a test
 * notices: `node tools/untested.js REPORT TEST... [--json LEFT] [--seconds MOST]`, each change as
 * the source has it now. LEFT is a report of those that no test notices, to be tried on dearer tests.
 *
 * TEST is a file or a folder of test/. All tests run once without a change; then those that come
 * past a change run with it, cheap ones first, each change in a worker of its own, which reads the
 * sources anew. A test that takes MOST (60) seconds of a processor more than without the change
 * does not end, which is noticed.
 */
import { mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { clearInterval, setInterval } from "node:timers";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

import { bundled } from "./bundled.js";
import { changed } from "./changes.js";

const HERE = join(dirname(fileURLToPath(import.meta.url)), "..");
const args = process.argv.slice(2);
function option(name) {
  const at = args.indexOf(name);
  return at < 0 ? undefined : args.splice(at, 2)[1];
}
const leftover = option("--json");
const most = 1000 * Number(option("--seconds") ?? 60);
const [report, ...names] = args;
if (report === undefined || names.length === 0) throw new Error("name a report and tests");

function files(path) {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path).flatMap((name) => files(join(path, name)));
}
const tests = names
  .flatMap((name) => files(join(HERE, name)))
  .filter((path) => path.endsWith(".test.ts"));
const { left: tried } = JSON.parse(readFileSync(report, "utf8"));

const texts = new Map();
const changes = [];
for (const { file } of tried) {
  const path = join(HERE, file);
  if (texts.has(path)) continue;
  const { text, found } = changed(path, changes.length);
  texts.set(path, text);
  changes.push(...found);
}

/** The number of a change, whose lines may have moved; −1 if it is there no more. */
function numberOf({ file, line, kind, was }) {
  const path = join(HERE, file);
  const same = changes.filter((one) => one.path === path && one.kind === kind && one.was === was);
  const distance = (one) => Math.abs(one.line - line);
  return changes.indexOf(same.sort((a, b) => distance(a) - distance(b))[0]);
}

const script = join(mkdtempSync(join(tmpdir(), "untested-")), "tests.mjs");
await bundled(script, texts, {
  absWorkingDir: HERE,
  stdin: {
    contents: `import { runTests } from "./tools/tested.ts";
await runTests([${tests.map((path) => `() => import(${JSON.stringify(path)})`).join(", ")}]);`,
    resolveDir: HERE,
    loader: "ts",
  },
  // The expectations' own chai is written for require.
  banner: {
    js: 'import { createRequire } from "node:module"; const require = createRequire("/");',
  },
  alias: { vitest: "./tools/testing.ts" },
});

/** Milliseconds of a processor so far. */
function worked() {
  const { system, user } = process.cpuUsage();
  return (system + user) / 1000;
}

/** Runs tests in a worker; its last word, or that it does not end. */
function run(workerData) {
  return new Promise((done, fail) => {
    const worker = new Worker(script, { workerData });
    let [since, allowed] = [worked(), Infinity];
    let last = { by: "a worker that stops" };
    const timer = setInterval(() => {
      if (worked() - since <= allowed) return;
      last = { by: "it does not end" };
      void worker.terminate();
    }, 500);
    worker.on("message", (message) => {
      [since, allowed] = [worked(), most + (message.ms ?? 0)];
      last = message;
    });
    worker.on("error", fail);
    worker.on("exit", () => {
      clearInterval(timer);
      done(last);
    });
  });
}

const { known, by: broken } = await run({ thrown: -1 });
if (known === undefined) throw new Error(`without a change this fails: ${broken}`);
process.stdout.write(`${known.length} tests, ${Math.round(worked() / 1000)} s of a processor\n`);
known.sort((a, b) => a.ms - b.ms);

/** The first test that fails with the change made; null if none does. */
async function noticedBy(number) {
  const past = known
    .filter(({ seen }) => seen.includes(number))
    .map(({ file, at, ms, calls }) => ({ file, at, ms, calls }));
  if (past.length === 0) return null;
  const { by } = await run({ thrown: number, past });
  return by;
}

const left = [];
for (const one of tried) {
  const number = numberOf(one);
  const by = number < 0 ? "it is there no more" : await noticedBy(number);
  if (by === null) left.push(one);
  if (leftover !== undefined) writeFileSync(leftover, `${JSON.stringify({ left }, null, 2)}\n`);
  const place = `${one.file}:${one.line} ${one.kind}: ${one.was.slice(0, 60)}`;
  process.stdout.write(`${place} | ${by ?? "NOT NOTICED"}\n`);
}
process.stdout.write(`${left.length} not noticed\n`);

/**
 * Takes one check after the other out of the judge's source, and looks whether the vectors notice:
 * `node tools/mutation.js FOLDER_OR_FILE... [--json FILE]` (docs/proofs/judge.md). What they do not
 * notice is named, for a test of its own.
 */
import { mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import process from "node:process";
import { clearTimeout, setTimeout } from "node:timers";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";

import { build } from "esbuild";

import { changed } from "./changes.js";

const HERE = join(dirname(fileURLToPath(import.meta.url)), "..");
/** Seconds that one case may take; a loop without a switch inside would not end. */
const SECONDS = 120;
/** Cases of a large bundle. */
const SAMPLE = 40;

function files(path) {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path).flatMap((name) => files(join(path, name)));
}

const args = process.argv.slice(2);
const at = args.indexOf("--json");
const [report] = at < 0 ? [undefined] : args.splice(at, 2).slice(1);
if (args.length === 0) throw new Error("name files or folders of src");

const changes = [];
const texts = new Map();
for (const path of args.flatMap((name) => files(join(HERE, name)))) {
  const { text, found } = changed(path, changes.length);
  texts.set(path, text);
  changes.push(...found);
}

const script = join(mkdtempSync(join(tmpdir(), "mutation-")), "check.mjs");
await build({
  absWorkingDir: HERE,
  entryPoints: ["tools/check.ts"],
  bundle: true,
  platform: "node",
  format: "esm",
  outfile: script,
  plugins: [
    {
      name: "switches",
      setup: (of) =>
        of.onLoad({ filter: /\.ts$/ }, ({ path }) => {
          const text = texts.get(path) ?? readFileSync(path, "utf8");
          // Tests read vectors/ by their own place, which a bundle has lost.
          const place = JSON.stringify(pathToFileURL(path).href);
          return { contents: text.replaceAll("import.meta.url", place), loader: "ts" };
        }),
    },
  ],
});

const left = [];
let ended = 0;
function say(number, by, cases) {
  const { path, line, kind, was } = changes[number];
  const place = `${relative(HERE, path)}:${line}`;
  if (by === null) left.push({ file: relative(HERE, path), line, kind, was, cases });
  const how = by ?? `NOT NOTICED by ${cases} cases`;
  process.stdout.write(
    `${++ended}/${changes.length} ${place} ${kind}: ${was.slice(0, 60)} | ${how}\n`,
  );
}

const ofReading = ({ path }) =>
  /[/]src[/](job|program|operators)[/]|[/]src[/][a-z]+[.]ts$/.test(path);
const reading = new Set(changes.flatMap((one, number) => (ofReading(one) ? [number] : [])));

/** Runs the switches from one on; the switch at which the worker had to be stopped, if it had. */
function run(switches) {
  return new Promise((done, fail) => {
    const worker = new Worker(script, { workerData: { switches, reading, sample: SAMPLE } });
    let [begun, timer, stopped] = [undefined, undefined, undefined];
    worker.on("message", (message) => {
      clearTimeout(timer);
      if (message.begun === undefined) say(message.number, message.by, message.cases);
      else {
        begun = message.begun;
        timer = setTimeout(() => {
          stopped = begun;
          void worker.terminate();
        }, SECONDS * 1000);
      }
    });
    worker.on("error", fail);
    worker.on("exit", () => {
      clearTimeout(timer);
      done(stopped);
    });
  });
}

let waiting = changes.map((_, number) => number);
while (waiting.length > 0) {
  const stopped = await run(waiting);
  if (stopped === undefined) break;
  say(stopped, "it does not end", 0);
  waiting = waiting.slice(waiting.indexOf(stopped) + 1);
}
if (report !== undefined) {
  writeFileSync(report, `${JSON.stringify({ changes: changes.length, left }, null, 2)}\n`);
}
process.stdout.write(`${changes.length} changes, ${left.length} not noticed by the vectors\n`);

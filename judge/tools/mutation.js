/**
 * Takes one check after the other out of the judge's source, and looks whether the vectors notice:
 * `node tools/mutation.js FOLDER_OR_FILE... [--json FILE] [--sample COUNT] [--seed NUMBER]`
 * (docs/proofs/judge.md). What they do not notice is named, for a test of its own. A sample takes
 * so many changes of each folder or file, by the digest of the seed and of what the change is.
 */
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import process from "node:process";
import { clearTimeout, setTimeout } from "node:timers";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

import { bundled } from "./bundled.js";
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
function option(name) {
  const at = args.indexOf(name);
  return at < 0 ? undefined : args.splice(at, 2)[1];
}
const report = option("--json");
const count = Number(option("--sample") ?? Infinity);
const seed = option("--seed") ?? "0";
if (args.length === 0) throw new Error("name files or folders of src");

/** What orders the changes of a sample. */
const keyOf = ({ path, line, kind, was }) =>
  createHash("sha256")
    .update([seed, relative(HERE, path), line, kind, was].join("|"))
    .digest("hex");

const changes = [];
const tried = [];
const texts = new Map();
for (const name of args) {
  const numbers = [];
  for (const path of files(join(HERE, name))) {
    const { text, found } = changed(path, changes.length);
    texts.set(path, text);
    for (const one of found) numbers.push(changes.push(one) - 1);
  }
  const keys = new Map(numbers.map((number) => [number, keyOf(changes[number])]));
  numbers.sort((a, b) => (keys.get(a) < keys.get(b) ? -1 : 1));
  const taken = numbers.slice(0, count).sort((a, b) => a - b);
  process.stdout.write(`${name}: ${taken.length} of ${numbers.length} changes\n`);
  tried.push(...taken);
}

const script = join(mkdtempSync(join(tmpdir(), "mutation-")), "check.mjs");
await bundled(script, texts, { absWorkingDir: HERE, entryPoints: ["tools/check.ts"] });

const left = [];
let ended = 0;
let waiting = tried;
function say(number, by, cases) {
  const { path, line, kind, was } = changes[number];
  const place = `${relative(HERE, path)}:${line}`;
  if (by === null) left.push({ file: relative(HERE, path), line, kind, was, cases });
  if (report !== undefined) {
    const found = { changes: changes.length, tried: ended + 1, left };
    writeFileSync(report, `${JSON.stringify(found, null, 2)}\n`);
  }
  const how = by ?? `NOT NOTICED by ${cases} cases`;
  process.stdout.write(
    `${++ended}/${tried.length} ${place} ${kind}: ${was.slice(0, 60)} | ${how}\n`,
  );
}

/** Says how many cases there are, when all have been run without a change. */
function told({ cases, ms }) {
  process.stdout.write(`${cases} cases, ${Math.round(ms / 1000)} s of a processor\n`);
}

const ofReading = ({ path }) =>
  /[/]src[/](data|job|numbers|operators|program)[/]|[/]src[/][a-z]+[.]ts$/.test(path);
const reading = new Set(changes.flatMap((one, number) => (ofReading(one) ? [number] : [])));

/** Runs the switches from one on; the switch at which the worker had to be stopped, if it had. */
function run(switches) {
  return new Promise((done, fail) => {
    const worker = new Worker(script, { workerData: { switches, reading, sample: SAMPLE } });
    let [begun, timer, stopped] = [undefined, undefined, undefined];
    worker.on("message", (message) => {
      clearTimeout(timer);
      if (message.ms !== undefined) told(message);
      else if (message.begun === undefined) say(message.number, message.by, message.cases);
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

while (waiting.length > 0) {
  const stopped = await run(waiting);
  if (stopped === undefined) break;
  say(stopped, "it does not end", 0);
  waiting = waiting.slice(waiting.indexOf(stopped) + 1);
}
process.stdout.write(
  `${tried.length} of ${changes.length} changes, ${left.length} not noticed by the vectors\n`,
);

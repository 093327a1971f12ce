/**
 * Which of the changes that the vectors do not notice (`tools/mutation.js --json REPORT`) a test
 * notices: `node tools/untested.js REPORT TEST...`, each change as the source has it now.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

import { changed } from "./changes.js";

const HERE = join(dirname(fileURLToPath(import.meta.url)), "..");
/** Milliseconds that the tests may take with a change; a loop would not end. */
const MOST = 300_000;

/** The number of a change in its file, whose lines may have moved; −1 if it is there no more. */
function numberOf({ file, line, kind, was }) {
  const { found } = changed(join(HERE, file), 0);
  const same = found.filter((one) => one.kind === kind && one.was === was);
  const distance = (one) => Math.abs(one.line - line);
  return found.indexOf(same.sort((a, b) => distance(a) - distance(b))[0]);
}

/** The first test that fails with the change; null if none does. */
function noticedBy(file, number, tests) {
  const config = ["--config", "tools/mutated.config.js", "--bail", "1", "--reporter", "json"];
  const { error, stdout } = spawnSync("npx", ["vitest", "run", ...config, ...tests], {
    cwd: HERE,
    env: { ...process.env, CHANGE: `${file}:${number}` },
    encoding: "utf8",
    maxBuffer: 1 << 28,
    timeout: MOST,
  });
  if (error !== undefined) return "it does not end";
  const { success, testResults } = JSON.parse(stdout.slice(stdout.indexOf("{")));
  if (success) return null;
  const failed = testResults.flatMap(({ assertionResults }) => assertionResults);
  return failed.find(({ status }) => status === "failed")?.fullName ?? "a file that is not read";
}

const [report, ...tests] = process.argv.slice(2);
if (report === undefined || tests.length === 0) throw new Error("name a report and tests");
let left = 0;
for (const change of JSON.parse(readFileSync(report, "utf8")).left) {
  const number = numberOf(change);
  const by = number < 0 ? "it is there no more" : noticedBy(change.file, number, tests);
  if (by === null) left++;
  const { file, line, kind, was } = change;
  const place = `${file}:${line} ${kind}: ${was.slice(0, 60)}`;
  process.stdout.write(`${place} | ${by ?? "NOT NOTICED"}\n`);
}
process.stdout.write(`${left} not noticed\n`);

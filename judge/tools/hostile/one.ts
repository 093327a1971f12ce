/**
 * Judges the evidence of one folder of `make.ts`, in a process of its own: `node one.mjs FOLDER
 * OPERATORS`. It says in a line of JSON what came of it, the milliseconds of the judgement by the
 * clock (`ms`) and of a processor (`cpu`), and how far the most memory of the process grew beyond
 * what the job's terms take (`mb`).
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { cpuUsage, resourceUsage } from "node:process";

import { RefusedError } from "../../src/errors.ts";
import { readTerms } from "../../src/job/read.ts";
import { readTable } from "../../src/operators/index.ts";
import { judge } from "../../src/protocol/judge.ts";

const [, , folder = "", operators = ""] = process.argv;
const file = (name: string): Uint8Array => new Uint8Array(readFileSync(join(folder, name)));

/** Milliseconds of a processor so far, in all threads. */
const worked = (): number => (cpuUsage().user + cpuUsage().system) / 1000;
/** The most memory so far, in MB. */
const peak = (): number => resourceUsage().maxRSS / 1024;

const evidence = file("evidence.bin");
const table = readTable(JSON.parse(readFileSync(operators, "utf8")));
const began = performance.now();
const terms = readTerms({ manifest: file("job.json"), programs: [file("program.txt")] }, table);
const [read, workedBefore, before] = [performance.now(), worked(), peak()];
let outcome: string;
try {
  const { agreement, convicted, rounds } = judge(evidence, terms, { referees: [] });
  const how = convicted.map(({ party, clause }) => `${party} ${clause}`).join(", ");
  outcome = `${rounds} rounds: ${agreement ? "agreement" : how || "undecided"}`;
} catch (error) {
  if (!(error instanceof RefusedError)) throw error;
  outcome = `refused: ${error.message}`;
}
const [judged, workedAfter] = [performance.now(), worked()];
process.stdout.write(
  `${JSON.stringify({
    bytes: evidence.length,
    job: Math.round(read - began),
    ms: Math.round(judged - read),
    cpu: Math.round(workedAfter - workedBefore),
    mb: Math.round(peak() - before),
    peak: Math.round(peak()),
    outcome,
  })}\n`,
);

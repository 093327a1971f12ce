/**
 * Judges what comes on standard input, one JSON object a line, and says what it found, one a line.
 * tests/adversary/three_judges.py compares it with the judges in Python.
 *
 *     {"job": {"job.json": BASE64, "program.txt": BASE64}}              ->  {"job": NUMBER}
 *     {"of": NUMBER, "evidence": BASE64, "referees": [HEX, ...]}        ->  {"found": OBJECT}
 *
 * Instead of `found` there is `refused`, a sentence, or `crashed`, which must never come.
 */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import { fromHex } from "../src/bytes.ts";
import { RefusedError } from "../src/errors.ts";
import { readTerms } from "../src/job/read.ts";
import type { Terms } from "../src/job/terms.ts";
import { readTable } from "../src/operators/index.ts";
import { judge } from "../src/protocol/judge.ts";
import { PublicKey } from "../src/signatures.ts";

interface Asked {
  readonly job?: Readonly<Record<string, string>>;
  readonly of?: number;
  readonly evidence?: string;
  readonly referees?: readonly string[];
}

const [, , operators = "vectors/operators.json"] = process.argv;
const table = readTable(JSON.parse(readFileSync(operators, "utf8")));
const jobs: Terms[] = [];

const bytesOf = (base64 = ""): Uint8Array => Uint8Array.from(Buffer.from(base64, "base64"));

function answer({ job, of = 0, evidence, referees = [] }: Asked): unknown {
  if (job !== undefined) {
    const files = new Map(Object.entries(job).map(([name, text]) => [name, bytesOf(text)]));
    const manifest = files.get("job.json") ?? new Uint8Array();
    files.delete("job.json");
    jobs.push(readTerms({ manifest, programs: files }, table));
    return { job: jobs.length - 1 };
  }
  const terms = jobs[of];
  if (terms === undefined) throw new Error(`no job ${of}`);
  const began = performance.now();
  const took = (): number => Math.round(performance.now() - began);
  try {
    const keys = referees.map((key) => new PublicKey(fromHex(key)));
    const found = judge(bytesOf(evidence), terms, { referees: keys });
    return { found, took: took() };
  } catch (error) {
    if (error instanceof RefusedError) return { refused: error.message, took: took() };
    return { crashed: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(answer(JSON.parse(line) as Asked))}\n`);
}

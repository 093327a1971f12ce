/** The jobs of vectors/protocol (README there): each is read, and its text is written again. */
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

import { fromUtf8, toHex } from "../../src/bytes.ts";
import { readTerms } from "../../src/job/read.ts";
import { readManifest } from "../../src/job/manifest.ts";
import { inferTypes } from "../../src/operators/index.ts";
import { expansionOf } from "../../src/program/expansion.ts";
import type { StepProgram } from "../../src/program/program.ts";
import { readProgram } from "../../src/program/read.ts";
import { vectorBytes, vectors } from "../commit/golden.ts";
import { TABLE } from "../program/cases.ts";
import { written } from "../program/written.ts";

type Place = readonly [number, number];

const FOLDER = fileURLToPath(new URL("../../../vectors/protocol/", import.meta.url));
const BUNDLES = readdirSync(FOLDER)
  .filter((name) => name.endsWith(".json") && name !== "sessions.json")
  .map((name) => name.slice(0, -".json".length));

/** The files of each job of a bundle. */
function jobsOf(bundle: string): Map<string, Uint8Array>[] {
  const { jobs } = vectors<{ jobs: Record<string, Place>[] }>(`protocol/${bundle}.json`);
  const bytes = vectorBytes(`protocol/${bundle}.bin`);
  return jobs.map(
    (job) =>
      new Map(
        Object.entries(job).map(([name, [at, length]]) => [name, bytes.subarray(at, at + length)]),
      ),
  );
}

/** NUMERICS 16 gives each node of an expansion the outputs that it has. */
function checkTypes(program: StepProgram): void {
  for (let k = 0; k < program.nodeCount - 1; k++) {
    const { operator, attributes, operandTypes, outputs } = program.node(k);
    expect(inferTypes(TABLE, operator.name, attributes, operandTypes)).toEqual(outputs);
  }
}

describe("jobs of vectors/protocol", () => {
  test.each(BUNDLES)("%s", (bundle) => {
    for (const job of jobsOf(bundle)) {
      const manifest = job.get("job.json") ?? new Uint8Array();
      const programs = new Map([...job].filter(([name]) => name !== "job.json"));
      const terms = readTerms({ manifest, programs }, TABLE);
      expect(toHex(terms.jobDigest)).toBe(toHex(readManifest(manifest).jobDigest));
      for (let t = 0; t < Math.min(terms.steps, 8); t++) checkTypes(terms.step(t).program);
      for (const bytes of programs.values()) {
        const { text } = readProgram(bytes, TABLE);
        if (text.version === 2) continue;
        expect(written(text, expansionOf(text, 1, TABLE), 1)).toBe(fromUtf8(bytes));
      }
    }
  });
});

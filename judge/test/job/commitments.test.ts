/** vectors/commit/job.json, job-2.json and job-3.json. */
import { describe, expect, test } from "vitest";

import { toHex } from "../../src/bytes.ts";
import { readJson, writeJson, type Json } from "../../src/json.ts";
import { jobOf } from "../../src/job/commitment.ts";
import { jobDigest } from "../../src/job/digest.ts";
import { at, type Format } from "../../src/job/job.ts";
import { batchesOf, checkPlan } from "../../src/job/plan.ts";
import { scalarsDigest, scalarsOf } from "../../src/job/scalars.ts";
import { seedOf } from "../../src/job/seeds.ts";
import { Timetable } from "../../src/job/timetable.ts";
import { vectors } from "../commit/golden.ts";

interface Row {
  readonly step: number;
  readonly program: number;
  readonly number: number;
  readonly row: number;
  /** Null where the program reads no data. */
  readonly micro_batches: readonly (readonly number[])[] | null;
  readonly key: readonly [string, number];
}

interface File {
  readonly scalars?: unknown;
  readonly jobs: readonly { readonly job: unknown; readonly digest: string }[];
  readonly timetables?: readonly {
    readonly job: unknown;
    readonly table_rows: readonly number[];
    readonly rows: readonly Row[];
  }[];
}

/** A parsed value as the project's own JSON. */
function ownJson(value: unknown): Json {
  if (Array.isArray(value)) return value.map(ownJson);
  if (typeof value !== "object" || value === null) return value as Json;
  return new Map(Object.entries(value).map(([name, item]) => [name, ownJson(item)]));
}

const FILES = ([1, 2, 3] as const).map((format): [Format, File] => [
  format,
  vectors<File>(`commit/job${format === 1 ? "" : `-${format}`}.json`),
]);

describe.each(FILES)("job digests of format %d", (format, { jobs }) => {
  test.each(jobs.map(({ job, digest }, k) => [k, job, digest] as const))("%d", (_, job, digest) => {
    expect(toHex(jobDigest(jobOf(ownJson(job), format)))).toBe(digest);
  });
});

test("the scalars digest (COMMITMENTS 7.3)", () => {
  const [, file] = FILES[0] ?? [];
  const [first] = file?.jobs ?? [];
  const stated = (first?.job as { scalars_digest: string }).scalars_digest;
  const bytes = writeJson(ownJson(file?.scalars));
  expect(toHex(scalarsDigest(scalarsOf(readJson(bytes, bytes.length))))).toBe(stated);
});

const TIMETABLES = FILES.flatMap(([format, { timetables = [] }]) =>
  timetables.map((one, k) => [`${format}, timetable ${k}`, format, one] as const),
);

describe("timetables, batches and keys (COMMITMENTS 7.6.3 to 7.6.6, 7.7.3 to 7.7.6)", () => {
  test.each(TIMETABLES)("format %s", (_, format, { job: members, table_rows, rows }) => {
    const job = jobOf(ownJson(members), format);
    const timetable = new Timetable(job);
    const batches = batchesOf(job);
    checkPlan(job, timetable, batches);
    const found = rows.map(({ step }): Row => {
      const { program, stream, batchNumber } = timetable.at(step);
      const { data, first } = at(job.streams, stream);
      const { microBatches, batchSize } = at(job.programs, program);
      const size = batchSize / microBatches;
      const starts = Array.from({ length: microBatches }, (_, v) => v * size);
      const record = (place: number): number => at(batches, stream).record(batchNumber, place);
      const microBatch = (start: number): number[] =>
        Array.from({ length: size }, (_, i) => record(start + i));
      return {
        step,
        program,
        number: batchNumber,
        row: batchNumber - first,
        micro_batches: data === null ? null : starts.map(microBatch),
        key: [seedOf(job, stream).toString(), batchNumber],
      };
    });
    expect(found).toEqual(rows);
    expect(job.programs.map(({ stream }) => timetable.rows(stream))).toEqual(table_rows);
  });
});

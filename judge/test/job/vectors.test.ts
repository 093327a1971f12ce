import { describe, expect, test } from "vitest";

import { toHex, toUtf8 } from "../../src/bytes.ts";
import { readTerms } from "../../src/job/read.ts";
import { casesOf, fileOf, orRefused, TABLE, type Case, type List } from "../program/cases.ts";

const FIRST = casesOf("programs")[0]?.text ?? "";

/** The texts of a job's programs (vectors/program/README.md). */
function programsOf({ program, programs }: Case): Uint8Array[] {
  return (programs ?? [program ?? FIRST]).map(toUtf8);
}

const LISTS: readonly List[] = ["jobs", "jobs_2", "jobs_3"];

describe.each(LISTS)("vectors/program/index.json, %s (COMMITMENTS 1, 7, 8, 11)", (list) => {
  test.each(casesOf(list).map((one) => [one.name, one] as const))("%s", (_, one) => {
    const files = { manifest: fileOf(one), programs: programsOf(one) };
    const read = orRefused(() => toHex(readTerms(files, TABLE).jobDigest));
    expect(read).toBe(one.digest ?? "refused");
  });
});

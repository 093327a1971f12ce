/** Manifests with other values, under digests that fit them: each is read, or refused as such. */
import { expect, test } from "vitest";

import { fromUtf8, toHex, toUtf8 } from "../../src/bytes.ts";
import { RefusedError } from "../../src/errors.ts";
import { jobOf } from "../../src/job/commitment.ts";
import { jobDigest } from "../../src/job/digest.ts";
import type { Format } from "../../src/job/job.ts";
import { readManifest } from "../../src/job/manifest.ts";
import { batchesOf, checkPlan } from "../../src/job/plan.ts";
import { readTerms } from "../../src/job/read.ts";
import { Timetable } from "../../src/job/timetable.ts";
import { readJson, writeJson, type Json, type JsonObject } from "../../src/json.ts";
import { objectOf } from "../../src/members.ts";
import { readProgram } from "../../src/program/read.ts";
import { Writer } from "../../src/writer.ts";
import { casesOf, fileOf, orRefused, TABLE } from "../program/cases.ts";
import { words } from "../vectors.ts";

const VALUES: readonly Json[] = [
  null,
  true,
  false,
  -1,
  0,
  1,
  2,
  3,
  5,
  7,
  12,
  64,
  65536,
  2 ** 20,
  2 ** 40,
  Number.MAX_SAFE_INTEGER,
  "",
  "0",
  "1",
  "18446744073709551615",
  "step",
  "__proto__",
  "sequential",
  "0x1.8000000000000p+1",
  "inf",
  "00".repeat(32),
  "\u0000\ud7ff",
];

type Word = () => number;

const some = <T>(items: readonly T[], word: Word): T | undefined => items[word() % items.length];

/** The value with another one somewhere in it. */
function altered(value: Json, word: Word): Json {
  if (word() % 8 === 0) return some(VALUES, word) ?? null;
  if (Array.isArray(value) && value.length > 0) {
    const at = word() % value.length;
    if (word() % 8 === 0) return value.filter((_, k) => k !== at);
    if (word() % 8 === 0) return [...value, value[at] ?? null];
    return value.map((item, k) => (k === at ? altered(item, word) : item));
  }
  if (value instanceof Map && value.size > 0) {
    const name = some([...value.keys()], word) ?? "";
    return new Map(value).set(name, altered(value.get(name) ?? null, word));
  }
  return some(VALUES, word) ?? null;
}

/** The manifest with the digests that it must have, as far as it is one. */
function sealed(manifest: JsonObject, format: Format): Uint8Array {
  const made = new Map(manifest);
  const job = orRefused(() => jobOf(made.get("commitment") ?? null, format));
  if (job !== "refused") made.set("job_digest", toHex(jobDigest(job)));
  made.delete("manifest_digest");
  const digest = Writer.tagged("manifest/1").blob(writeJson(made)).digest();
  return writeJson(made.set("manifest_digest", toHex(digest)));
}

const LISTS = [
  [1, casesOf("jobs")],
  [2, casesOf("jobs_2")],
  [3, casesOf("jobs_3")],
] as const;

test.each(LISTS)("jobs of format %d", (format, cases) => {
  const word = words(format);
  const first = casesOf("programs")[0]?.text ?? "";
  const good = cases.filter(({ digest }) => digest !== undefined);
  const counts = { refused: 0, read: 0 };
  for (let round = 0; round < 600; round++) {
    const one = some(good, word);
    if (one === undefined) throw new Error("no job");
    const bytes = fileOf(one);
    const manifest = objectOf(readJson(bytes, bytes.length));
    const member = word() % 4 === 0 ? some([...manifest.keys()], word) : "commitment";
    const value = altered(manifest.get(member ?? "") ?? null, word);
    const file = sealed(new Map(manifest).set(member ?? "", value), format);
    const programs = (one.programs ?? [one.program ?? first]).map(toUtf8);
    const read = orRefused(() => {
      const terms = readTerms({ manifest: file, programs }, TABLE);
      const steps = [0, 1, terms.steps >> 1, terms.steps - 1].filter(
        (t) => t >= 0 && t < terms.steps,
      );
      for (const t of steps) expect(terms.step(t).batchNumber).toBeLessThanOrEqual(2 ** 40);
      return terms.jobDigest;
    });
    if (read === "refused") counts.refused++;
    else {
      counts.read++;
      expect(fromUtf8(file)).toContain(toHex(read));
    }
  }
  expect(counts.refused).toBeGreaterThan(100);
  expect(counts.read).toBeGreaterThan(30);
});

/** The manifest of a case, its digest aside. */
function manifestOf(list: "jobs_2" | "jobs_3", name: string): JsonObject {
  const one = casesOf(list).find((found) => found.name === name);
  if (one === undefined) throw new Error(`no case ${name}`);
  return objectOf(readJson(fileOf(one), 2 ** 20));
}

test("an evaluation names its program and its records by digests (7.5.4)", () => {
  const manifest = manifestOf("jobs_2", "a job");
  const isRead = (changes: Readonly<Record<string, Json>>): boolean => {
    const digest = "00".repeat(32);
    const own = { every: 0, program_digest: digest, data_root: digest };
    const all = { ...own, record_count: 5, batch_size: 5, ...changes };
    const evaluation = new Map<string, Json>(Object.entries(all));
    const file = sealed(new Map(manifest).set("evaluation", evaluation), 2);
    return orRefused(() => readManifest(file)) !== "refused";
  };
  expect(isRead({})).toBe(true);
  for (const name of ["program_digest", "data_root"]) {
    for (const other of [null, 0, "", "00".repeat(31), "00".repeat(33), "0G".repeat(32)]) {
      expect(isRead({ [name]: other })).toBe(false);
    }
  }
  expect(isRead({ every: -1 })).toBe(false);
  expect(isRead({ record_count: 0, batch_size: 0 })).toBe(false);
  expect(isRead({ batch_size: 6 })).toBe(false);
});

test("micro-batches divide the batch (7.6.1)", () => {
  const { job } = readManifest(sealed(manifestOf("jobs_3", "a job"), 3));
  const plan = (microBatches: number) => (): void => {
    const [first, ...rest] = job.programs;
    if (first === undefined) throw new Error("no program");
    const own = { ...job, programs: [{ ...first, microBatches }, ...rest] };
    checkPlan(own, new Timetable(own), batchesOf(own));
  };
  expect(job.programs[0]?.batchSize).toBe(2);
  for (const good of [1, 2]) expect(plan(good)).not.toThrow();
  for (const bad of [3, 4]) expect(plan(bad)).toThrow("micro-batches");
});

type Change = (members: JsonObject) => JsonObject;

const itself: Change = (members) => members;
const withMember =
  (name: string, value: Json): Change =>
  (members) =>
    new Map(members).set(name, value);

/** The terms of the job of format 3 after changes to its programs' texts and its commitment. */
function changedTerms(text: (line: string) => string, commitment: Change = itself): unknown {
  const one = casesOf("jobs_3").find(({ name }) => name === "a job");
  const programs = (one?.programs ?? []).map((own) => toUtf8(own.split("\n").map(text).join("\n")));
  const manifest = manifestOf("jobs_3", "a job");
  const stated = objectOf(manifest.get("commitment") ?? null);
  const digests = programs.map((own) => toHex(readProgram(own, TABLE).digest));
  const entries = stated.get("programs");
  if (!Array.isArray(entries)) throw new Error("no programs");
  const renewed = entries.map((entry, k) =>
    new Map(objectOf(entry)).set("digest", digests[k] ?? ""),
  );
  const made = commitment(new Map(stated).set("programs", renewed));
  return readTerms(
    { manifest: sealed(new Map(manifest).set("commitment", made), 3), programs },
    TABLE,
  );
}

const sameText = (line: string): string => line;

test("a job that is sealed anew is read", () => {
  expect(changedTerms(sameText)).toMatchObject({ format: 3, steps: 18 });
});

test("a commitment states its own format (7.1, 7.6, 7.7)", () => {
  expect(() => changedTerms(sameText, withMember("format_version", 2))).toThrow(RefusedError);
});

test("several programs have no contract with logs (7.6)", () => {
  const contract = "replay/1-draft.1;b=27;form=bounded";
  const replayed = (line: string): string =>
    line.startsWith("contract ") ? `contract ${contract}` : line;
  expect(() => changedTerms(replayed, withMember("contract", contract))).toThrow(
    "several programs under a contract with logs",
  );
});

test("a job that stops on a slot has that slot (7.6.8)", () => {
  const renamed = (line: string): string => line.replaceAll("control.stop", "control.halt");
  expect(() => changedTerms(renamed)).toThrow("stops on a slot, and has none");
  expect(changedTerms(renamed, withMember("stop_on_slot", false))).toMatchObject({ steps: 18 });
});

test("a program has no slot of a chain (5.5)", () => {
  const renamed = (line: string): string => line.replaceAll("control.stop", "chain.loss");
  expect(() => changedTerms(renamed, withMember("stop_on_slot", false))).toThrow(
    "a program has the slot chain.loss",
  );
});

test("fields of records have texts as names, and dtypes that operators make (1.2, 7.5.1)", () => {
  const manifest = manifestOf("jobs_3", "a job");
  const read = (name: string, dtype: string) => (): unknown => {
    const field = new Map<string, Json>([["dtype", dtype], ["name", name], ["shape", [2]]]); // prettier-ignore
    const schemas: Json = [[field], [field]];
    return readManifest(sealed(new Map(manifest).set("schemas", schemas), 3));
  };
  expect(read("x", "f32")).not.toThrow();
  for (const dtype of ["bf16", "f16"]) expect(read("x", dtype)).toThrow("a field of a stored type");
  expect(read("x".repeat(1024), "f32")).not.toThrow();
  expect(read("x".repeat(1025), "f32")).toThrow(RefusedError);
});

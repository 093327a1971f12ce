/** The manifest of a job, `job.json` (COMMITMENTS 7.5, 7.6.10, 7.7.7). */
import { equalBytes } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { readHexFloat } from "../hexfloat.ts";
import { readJson, writeJson, type Json } from "../json.ts";
import { LIMITS } from "../limits.ts";
import { digestOf, exactly, integerOf, listOf, objectOf, stringOf } from "../members.ts";
import { checkType } from "../operators/index.ts";
import { Schema, type Field } from "../records.ts";
import { isStored } from "../numbers/bits.ts";
import { dtypeOf } from "../tensors.ts";
import { Writer } from "../writer.ts";
import { jobOf } from "./commitment.ts";
import { jobDigest } from "./digest.ts";
import type { Format, Job } from "./job.ts";
import { scalarsDigest, scalarsOf, type Scalars } from "./scalars.ts";

/** What referee and judge use of it (7.5.6). */
export interface Manifest {
  readonly job: Job;
  readonly jobDigest: Uint8Array;
  readonly scalars: Scalars;
  /** One for each data set. */
  readonly schemas: readonly Schema[];
}

const FORMATS: readonly Format[] = [1, 2, 3];
const MEMBERS = [
  "format",
  "commitment",
  "job_digest",
  "scalars",
  "fills",
  "recipe",
  "evaluation",
  "forward",
  "about",
  "manifest_digest",
] as const;

/** The manifest of a file's bytes; everything that 7.5.5 does not admit is refused. */
export function readManifest(bytes: Uint8Array): Manifest {
  const value = readJson(bytes, LIMITS.manifestBytes);
  const stated = objectOf(value).get("format");
  const format = FORMATS.find((number) => stated === `tallystick-job/${number}`);
  if (format === undefined) throw refuse("a manifest of another format");
  const schemaMember = format === 1 ? "schema" : "schemas";
  const get = exactly(value, [...MEMBERS, schemaMember]);
  requireDigest(get("manifest_digest"), manifestDigest(value), "manifest_digest");
  const job = jobOf(get("commitment"), format);
  const scalars = scalarsOf(get("scalars"));
  requireEqual(scalarsDigest(scalars), job.scalarsDigest, "scalars_digest");
  const digest = jobDigest(job);
  requireDigest(get("job_digest"), digest, "job_digest");
  const limit = format === 1 ? LIMITS.recordBytes : LIMITS.longRecordBytes;
  const given = format === 1 ? [get("schema")] : listOf(get("schemas"), 0, job.data.length);
  if (given.length !== job.data.length) throw refuse("another number of schemas than of data sets");
  const schemas = given.map((schema) => schemaOf(schema, limit));
  for (const fill of objectOf(get("fills")).values()) readHexFloat(stringOf(fill));
  checkRecipe(get("recipe"));
  checkEvaluation(get("evaluation"));
  if (get("forward") !== null) digestOf(get("forward"));
  objectOf(get("about"));
  return { job, jobDigest: digest, scalars, schemas };
}

function requireEqual(digest: Uint8Array, stated: Uint8Array, what: string): void {
  if (!equalBytes(digest, stated)) throw refuse(`${what} is another one`);
}

function requireDigest(stated: Json, digest: Uint8Array, what: string): void {
  requireEqual(digest, digestOf(stated), what);
}

/** The manifest digest (7.5.3). */
function manifestDigest(value: Json): Uint8Array {
  const rest = new Map(objectOf(value));
  rest.delete("manifest_digest");
  return Writer.tagged("manifest/1").blob(writeJson(rest)).digest();
}

/** The fields of a record, `schema` of 7.5.1. */
function schemaOf(value: Json, limit: number): Schema {
  const fields = listOf(value, 0, LIMITS.recordFields).map((item): Field => {
    const field = exactly(item, ["name", "dtype", "shape"]);
    const sizes = listOf(field("shape"), 0, LIMITS.tensorRank);
    const shape = sizes.map((size) => BigInt(integerOf(size, 0, LIMITS.tensorBytes)));
    const type = checkType(dtypeOf(stringOf(field("dtype"))), shape);
    if (isStored(type.dtype)) throw refuse("a field of a stored type");
    return { name: stringOf(field("name")), type };
  });
  const schema = new Schema(fields, limit);
  // Names are those of 1.2, which the digest writes.
  schema.digest();
  return schema;
}

/** `recipe` of 7.5.1. */
function checkRecipe(value: Json): void {
  if (value === null) return;
  const recipe = exactly(value, ["name", "settings"]);
  stringOf(recipe("name"));
  for (const setting of objectOf(recipe("settings")).values()) stringOf(setting);
}

/** 7.5.4. */
function checkEvaluation(value: Json): void {
  if (value === null) return;
  const members = ["every", "program_digest", "data_root", "record_count", "batch_size"] as const;
  const evaluation = exactly(value, members);
  integerOf(evaluation("every"), 0, Number.MAX_SAFE_INTEGER);
  digestOf(evaluation("program_digest"));
  digestOf(evaluation("data_root"));
  const records = integerOf(evaluation("record_count"), 1, LIMITS.records);
  integerOf(evaluation("batch_size"), 1, records);
}

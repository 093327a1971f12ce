/** Files that a reader hands over, told apart by what is in them and never by their names. */

import { equalBytes, toHex, toUtf8 } from "../bytes.ts";
import { readRunCommitment, type RunCommitment } from "../commitment.ts";
import { refuse, RefusedError } from "../errors.ts";
import { programFile, type JobFiles } from "../job/read.ts";
import { readJson, type Json } from "../json.ts";
import { LIMITS } from "../limits.ts";
import { Reader } from "../reader.ts";
import { sha256, tag } from "../sha256.ts";
import type { PublicKey } from "../signatures.ts";
import { carriedOf, carries, type Carried } from "./carried.ts";
import { visible } from "./names.ts";
import { PEM_BYTES, readPublicKey } from "./pem.ts";

export type Given =
  | { readonly kind: "evidence"; readonly bytes: Uint8Array }
  | { readonly kind: "commitment"; readonly commitment: RunCommitment }
  | { readonly kind: "manifest"; readonly bytes: Uint8Array }
  | { readonly kind: "program"; readonly bytes: Uint8Array }
  | { readonly kind: "page"; readonly carried: Carried }
  | { readonly kind: "entry"; readonly index: number; readonly bytes: Uint8Array }
  | { readonly kind: "key"; readonly key: PublicKey };

/** No file that is read here is longer; a longer one need not be loaded. */
export const FILE_BYTES = LIMITS.pageBytes;

const EVIDENCE = tag("evidence/1");
const ENTRY = tag("log-entry/1");
const PROGRAMS = [1, 2].map((version) => toUtf8(`tallystick program ${version}\n`));
const KEY = toUtf8("-----BEGIN PUBLIC KEY-----");
const SECRET = toUtf8("-----BEGIN PRIVATE KEY-----");
const FORMAT = /^tallystick-job\/[0-9]+$/;

function begins(bytes: Uint8Array, start: Uint8Array, at = 0): boolean {
  return equalBytes(bytes.subarray(at, at + start.length), start);
}

function within(bytes: Uint8Array, limit: number, what: string): Uint8Array {
  if (bytes.length > limit) throw refuse(`This is ${what}, but longer than any may be.`);
  return bytes;
}

const memberOf = (value: Json | undefined, name: string): Json | undefined =>
  value instanceof Map ? value.get(name) : undefined;

/** The index that a signed entry states (PROTOCOL 12.1, 13.1). */
function entryOf(bytes: Uint8Array): Given {
  within(bytes, LIMITS.entryBytes, "an entry of a session's log");
  const reader = new Reader(bytes);
  reader.u64();
  reader.tag("log-entry/1");
  return { kind: "entry", index: reader.count(LIMITS.logEntries - 1, "an index"), bytes };
}

/** Canonical JSON, or undefined: a reader need not know what is wrong with another file. */
function jsonIn(bytes: Uint8Array): Json | undefined {
  try {
    return readJson(bytes, LIMITS.manifestBytes);
  } catch (error) {
    if (error instanceof RefusedError) return undefined;
    throw error;
  }
}

/** What canonical JSON holds: a job's manifest (COMMITMENTS 7.5) or a run commitment (9.5). */
function jsonOf(bytes: Uint8Array): Given {
  const value = jsonIn(bytes);
  if (value instanceof Map && value.has("payloadType")) {
    within(bytes, LIMITS.commitmentBytes, "a signed statement");
    return { kind: "commitment", commitment: readRunCommitment(bytes) };
  }
  const format = memberOf(value, "format");
  if (typeof format === "string" && FORMAT.test(format)) return { kind: "manifest", bytes };
  throw refuse("This is a file of JSON, but neither a job nor a signed run commitment.");
}

/** What a file is. A refusal says in a sentence why it is none of these. */
export function whatIs(bytes: Uint8Array): Given {
  if (bytes.length === 0) throw refuse("This file is empty.");
  if (bytes.length > FILE_BYTES) throw refuse("This file is longer than any that is judged here.");
  if (begins(bytes, EVIDENCE)) {
    return { kind: "evidence", bytes: within(bytes, LIMITS.evidenceBytes, "evidence") };
  }
  if (PROGRAMS.some((start) => begins(bytes, start))) {
    return { kind: "program", bytes: within(bytes, LIMITS.programBytes, "a program's text") };
  }
  if (begins(bytes, ENTRY, 8)) return entryOf(bytes);
  if (begins(bytes, KEY)) {
    return { kind: "key", key: readPublicKey(within(bytes, PEM_BYTES, "a public key")) };
  }
  if (begins(bytes, SECRET)) {
    throw refuse(
      "This is a private key. Nobody but its owner should have it, and no judge needs it.",
    );
  }
  if (bytes[0] === 0x7b) return jsonOf(bytes);
  if (carries(bytes)) return { kind: "page", carried: carriedOf(bytes) };
  throw refuse(
    "This file is neither evidence, nor a run commitment, a job, a program's text, an entry of a " +
      "session's log, or a page that carries evidence.",
  );
}

interface WantedProgram {
  readonly file: string;
  readonly digest: string;
}

/** The programs that a manifest names (COMMITMENTS 7.1, 7.6.1). Whether it is a sound manifest is
 * for the reader of terms to say. */
function programsOf(manifest: Uint8Array): WantedProgram[] {
  const commitment = memberOf(readJson(manifest, LIMITS.manifestBytes), "commitment");
  const one = memberOf(commitment, "program_digest");
  if (typeof one === "string") return [{ file: programFile(1, ""), digest: one }];
  const several = memberOf(commitment, "programs");
  if (!Array.isArray(several)) throw refuse("The job names no program.");
  return several.map((item) => {
    const [name, digest] = [memberOf(item, "name"), memberOf(item, "digest")];
    if (typeof name !== "string" || typeof digest !== "string") {
      throw refuse("The job names a program without a digest.");
    }
    return { file: programFile(2, name), digest };
  });
}

/** The names of the files that hold a job's programs. */
export function programNames(manifest: Uint8Array): string[] {
  return programsOf(manifest).map(({ file }) => file);
}

/** The digest of a program's text (PROGRAM 4.1). */
function programDigest(text: Uint8Array): string {
  const version = PROGRAMS.findIndex((start) => begins(text, start)) + 1;
  return toHex(sha256(tag(`program/${version}`), text));
}

/** A job as the reader of terms takes it, and the files that are still missing. */
export interface Assembled {
  readonly files: JobFiles;
  readonly missing: readonly string[];
}

/** A job put together from its manifest and the texts at hand, each at the name that its digest
 * gives it. So a text of the same name and another content is no part of the job. */
export function assembleJob(manifest: Uint8Array, texts: readonly Uint8Array[]): Assembled {
  const byDigest = new Map(texts.map((text) => [programDigest(text), text]));
  const programs = new Map<string, Uint8Array>();
  const missing: string[] = [];
  for (const { file, digest } of programsOf(manifest)) {
    const text = byDigest.get(digest);
    if (text === undefined) missing.push(file);
    else programs.set(file, text);
  }
  return { files: { manifest, programs }, missing };
}

/** What is said where a job is not whole. */
export function lacking({ missing }: Assembled): string {
  const names = missing.slice(0, 3).map(visible).join(", ");
  return `The text that the job names as ${names} is missing, or is another one.`;
}

/** The contract that a manifest names (COMMITMENTS 7.1). */
export function contractOf(manifest: Uint8Array): string {
  const commitment = memberOf(readJson(manifest, LIMITS.manifestBytes), "commitment");
  const contract = memberOf(commitment, "contract");
  if (typeof contract !== "string") throw refuse("The job names no contract.");
  return contract;
}

/**
 * The format by which a page of HTML carries its evidence, so that the page can judge it, and so that
 * another copy of the judge can take it out again (PROTOCOL 8.6).
 *
 * A page has exactly one element `OPENING … </script>`. Its text is canonical JSON (COMMITMENTS 1.8)
 * of an object with exactly these members:
 *
 *     format    "tallystick-carried/1"
 *     evidence  standard base64 of the evidence (PROTOCOL 8.1)
 *     job       an object: file name -> base64; "job.json", "program.txt" or "program-NAME.txt"
 *     names     an object: public key in hexadecimal -> name, as the page's maker gives it
 *
 * The text has no `<`, so it ends where a browser and where this reader see the end of the element.
 */

import { digestFromHex, fromBase64, fromUtf8, toBase64, toUtf8 } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { readJson, writeJson, type Json, type JsonObject } from "../json.ts";
import { LIMITS } from "../limits.ts";
import { exactly, objectOf, stringOf } from "../members.ts";

const FORMAT = "tallystick-carried/1";
const TYPE = "application/vnd.tallystick.carried+json";
export const CARRIED_ID = "tallystick-carried";
/** Put together when it runs: a page that has this judge inside must not have the tag twice. */
export const OPENING = `<${["script", `type="${TYPE}"`, `id="${CARRIED_ID}">`].join(" ")}`;
const CLOSING = toUtf8(["<", "script>"].join("/"));

/** At most 64 programs (COMMITMENTS 7.6.1), and the manifest. */
const JOB_FILES = 65;
const PROGRAM_FILE = /^program(?:-[a-z][a-z0-9-]{0,39})?\.txt$/;

/** How many digits of base64 so many bytes have. */
const digits = (bytes: number): number => 4 * Math.ceil(bytes / 3);

export interface Carried {
  readonly evidence: Uint8Array;
  /** The job's files by name. */
  readonly job: ReadonlyMap<string, Uint8Array>;
  /** Public key in hexadecimal to the name that the page's maker gives it. */
  readonly names: ReadonlyMap<string, string>;
}

/** Bytes of base64 whose number is within a limit before any is decoded (PROTOCOL 8.6.2). */
function bounded(value: Json, limit: number, what: string): Uint8Array {
  const text = stringOf(value);
  if (text.length > digits(limit)) throw refuse(`The page carries ${what} over its limit.`);
  const bytes = fromBase64(text);
  if (bytes.length > limit) throw refuse(`The page carries ${what} over its limit.`);
  return bytes;
}

function readJob(members: JsonObject): Map<string, Uint8Array> {
  if (members.size > JOB_FILES) throw refuse("The page carries too many files of a job.");
  const files = new Map<string, Uint8Array>();
  for (const [name, value] of members) {
    if (name === "job.json") files.set(name, bounded(value, LIMITS.manifestBytes, "a job"));
    else if (PROGRAM_FILE.test(name)) {
      files.set(name, bounded(value, LIMITS.programBytes, "a program"));
    } else throw refuse("The page carries a file that is none of a job.");
  }
  if (!files.has("job.json")) throw refuse("The page carries no job.");
  return files;
}

function readNames(members: JsonObject): Map<string, string> {
  if (members.size > LIMITS.parties) throw refuse("The page names too many keys.");
  const names = new Map<string, string>();
  for (const [key, value] of members) {
    digestFromHex(key);
    const name = stringOf(value);
    if (toUtf8(name).length > LIMITS.nameBytes)
      throw refuse("The page gives a key too long a name.");
    names.set(key, name);
  }
  return names;
}

/** What the element's text says. */
export function readCarried(text: Uint8Array): Carried {
  if (text.includes(0x3c)) throw refuse("The evidence in this page is written in a wrong way.");
  const members = exactly(readJson(text, LIMITS.carriedBytes), [
    "format",
    "evidence",
    "job",
    "names",
  ]);
  if (members("format") !== FORMAT) {
    throw refuse("The page carries its evidence in a format that this judge does not know.");
  }
  return {
    evidence: bounded(members("evidence"), LIMITS.evidenceBytes, "evidence"),
    job: readJob(objectOf(members("job"))),
    names: readNames(objectOf(members("names"))),
  };
}

/** The element's text. */
export function writeCarried(carried: Carried): string {
  const files = [...carried.job].map(([name, bytes]): [string, Json] => [name, toBase64(bytes)]);
  const bytes = writeJson(
    new Map<string, Json>([
      ["format", FORMAT],
      ["evidence", toBase64(carried.evidence)],
      ["job", new Map(files)],
      ["names", new Map(carried.names)],
    ]),
  );
  readCarried(bytes);
  return fromUtf8(bytes);
}

/**
 * Where a byte string begins in another one, from a place on; -1 where it does not. By the last byte
 * it goes on to the next place where that one might fit (Horspool). Both tags end with the only `>`
 * in them, so no page makes it compare a byte more than twice.
 */
function find(page: Uint8Array, wanted: Uint8Array, from: number): number {
  const last = wanted.length - 1;
  const steps = new Uint8Array(256).fill(wanted.length);
  for (let i = 0; i < last; i++) steps[wanted[i] ?? 0] = last - i;
  for (let at = from + last; at < page.length; at += steps[page[at] ?? 0] ?? 1) {
    let i = 0;
    while (i <= last && page[at - i] === wanted[last - i]) i++;
    if (i > last) return at - last;
  }
  return -1;
}

/** Whether a page claims to carry evidence. */
export function carries(page: Uint8Array): boolean {
  return find(page, toUtf8(OPENING), 0) >= 0;
}

/** What a page carries, from the bytes of its file. The opening tag stands there exactly once. */
export function carriedOf(page: Uint8Array): Carried {
  if (page.length > LIMITS.pageBytes)
    throw refuse("This page is too long to be one that carries evidence.");
  const opening = toUtf8(OPENING);
  const at = find(page, opening, 0);
  if (at < 0) throw refuse("This page carries no evidence.");
  const start = at + opening.length;
  if (find(page, opening, start) >= 0) throw refuse("This page carries evidence more than once.");
  const end = find(page, CLOSING, start);
  if (end < 0) throw refuse("This page is cut off.");
  return readCarried(page.subarray(start, end));
}

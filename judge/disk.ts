/** What the command reads from a disk: files, a job's folder, a referee's log. */
import { lstatSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

import { assembleJob, type Assembled } from "./src/face/files.ts";
import { visible } from "./src/face/names.ts";
import { LIMITS } from "./src/limits.ts";

const PROGRAM_FILE = /^program(?:-[a-z][a-z0-9-]{0,39})?\.txt$/;
const PROGRAMS = 64;
/** The most bytes of a log that are held at once. */
const LOG_BYTES = 1 << 30;

/** Ends the command: the code, a sentence, and what to do about it. */
export class Ended extends Error {
  constructor(
    readonly code: 2 | 3,
    message: string,
    readonly next: string,
  ) {
    super(message);
  }
}

const unread = (message: string): Ended => new Ended(2, message, "Name a file that can be read.");

const noJob = (message: string): Ended =>
  new Ended(3, message, "Name the folder of a job with --job.");

/** A regular file of at most so many bytes. A path that a person names may be a link. */
export function bytesOf(path: string, limit: number, mayBeLink: boolean): Uint8Array {
  const named = visible(path);
  try {
    const info = mayBeLink ? statSync(path) : lstatSync(path);
    if (!info.isFile()) throw unread(`${named} is not a regular file.`);
    if (info.size > limit) throw unread(`${named} is longer than any such file may be.`);
    return new Uint8Array(readFileSync(path));
  } catch (error) {
    if (error instanceof Ended) throw error;
    throw unread(`${named} cannot be read.`);
  }
}

export function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** The files of a job that a judge needs (docs/INTERFACE.md, "Dispute and judge"). */
export function jobAt(folder: string): Assembled {
  const named = visible(folder);
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    throw noJob(`${named} is no folder that can be read.`);
  }
  if (!names.includes("job.json")) throw noJob(`${named} is not a job: it has no job.json.`);
  const programs = names.filter((name) => PROGRAM_FILE.test(name));
  if (programs.length > PROGRAMS) throw unread(`${named} has too many programs.`);
  const manifest = bytesOf(join(folder, "job.json"), LIMITS.manifestBytes, false);
  return assembleJob(
    manifest,
    programs.map((name) => bytesOf(join(folder, name), LIMITS.programBytes, false)),
  );
}

/** The names in a folder, of folders or of others. */
function namesIn(folder: string, areFolders: boolean): string[] {
  try {
    const found = readdirSync(folder, { withFileTypes: true });
    return found.filter((one) => one.isDirectory() === areFolders).map(({ name }) => name);
  } catch {
    throw unread(`${visible(folder)} cannot be read.`);
  }
}

/** The files of a log in ascending order: entry I is D/I.bin, D being the first four of I's seven
 * digits (PROTOCOL 12.6). */
function entryFiles(log: string): string[] {
  const folders = namesIn(log, true).filter((name) => /^[0-9]{4}$/.test(name));
  return folders.sort().flatMap((folder) => {
    const files = namesIn(join(log, folder), false).filter(
      (name) => /^[0-9]{7}\.bin$/.test(name) && name.startsWith(folder),
    );
    return files.sort().map((name) => join(log, folder, name));
  });
}

/** The signed entries of a referee's directory, or of the folder of its entries. Where one is missing
 * the next stands in its place, and is found not to belong there. */
export function entriesAt(folder: string): Uint8Array[] {
  const log = namesIn(folder, true).includes("log") ? join(folder, "log") : folder;
  const files = entryFiles(log);
  if (files.length === 0) throw unread(`${visible(folder)} has no log of a session.`);
  if (files.length > LIMITS.logEntries) {
    throw unread(`${visible(folder)} has more entries than any log.`);
  }
  let left = LOG_BYTES;
  return files.map((path) => {
    const bytes = bytesOf(path, Math.min(left, LIMITS.entryBytes), false);
    left -= bytes.length;
    return bytes;
  });
}

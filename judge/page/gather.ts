/** Files that a reader drops or chooses, folders among them. */

import { FILE_BYTES } from "../src/face/files.ts";

/** So many files of a folder are looked at; a session's log may have many. */
const FILES = 20_000;

async function entriesOf(folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = folder.createReader();
  const found: FileSystemEntry[] = [];
  for (;;) {
    const more = await new Promise<FileSystemEntry[]>((resolve, reject) => {
      reader.readEntries(resolve, reject);
    });
    if (more.length === 0 || found.length > FILES) return found;
    found.push(...more);
  }
}

async function walk(entry: FileSystemEntry, into: File[]): Promise<void> {
  if (into.length >= FILES) return;
  if (entry.isFile) {
    const file = entry as FileSystemFileEntry;
    into.push(
      await new Promise<File>((resolve, reject) => {
        file.file(resolve, reject);
      }),
    );
  } else {
    const inside = await entriesOf(entry as FileSystemDirectoryEntry);
    for (const one of inside) await walk(one, into);
  }
}

/** What was dropped. Entries must be taken from the event before the first wait. */
export async function dropped(transfer: DataTransfer): Promise<File[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry());
  if (entries.every((entry) => entry?.isDirectory !== true)) return [...transfer.files];
  const files: File[] = [];
  for (const entry of entries) if (entry !== null) await walk(entry, files);
  return files;
}

/** A file's bytes; null where it is longer than any that is judged here, without loading it. */
export async function bytesOf(file: File): Promise<Uint8Array | null> {
  return file.size > FILE_BYTES ? null : new Uint8Array(await file.arrayBuffer());
}

/** Rounding logs: sections, their blocks, and the digests that chain them (COMMITMENTS 10). */

import { refuse } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { leafHash, rootOf } from "./merkle.ts";
import { Writer } from "./writer.ts";

export type LogForm = "bounded" | "published";

/** Elements of a bounded block (10.2). */
const BOUNDED_BLOCK = 4096;
/** Bytes of a published block, and entries of a byte (10.3). */
const PUBLISHED_BYTES = 2048;
const ENTRIES_OF_BYTE = 5;
const TOP_BYTE = 242;

/** A section: one logged output of a node (10.1). */
export interface LogSection {
  readonly node: number;
  readonly output: number;
  readonly elements: number;
  readonly form: LogForm;
}

/** How many elements of its output a block of a section covers. */
export function blockElements(form: LogForm): number {
  return form === "bounded" ? BOUNDED_BLOCK : PUBLISHED_BYTES * ENTRIES_OF_BYTE;
}

/** How many blocks a section has (10.2, 10.3). */
export function blockCount(section: LogSection): number {
  return Math.ceil(section.elements / blockElements(section.form));
}

/** The digest of a section whose blocks have this root (10.4). */
export function sectionDigest(section: LogSection, root: Uint8Array): Uint8Array {
  return Writer.tagged("log-section/1")
    .u64(section.node)
    .u64(section.output)
    .u64(section.elements)
    .u8(section.form === "bounded" ? 1 : 2)
    .u64(blockCount(section))
    .hash(root)
    .digest();
}

/** The digest of a step's log, by its sections' digests (10.5). */
export function logDigest(step: number, sections: readonly Uint8Array[]): Uint8Array {
  if (sections.length > LIMITS.logSections) throw refuse("a log of too many sections");
  const tree = rootOf(sections.map((digest) => leafHash(digest)));
  return Writer.tagged("log/1").u64(step).u64(sections.length).hash(tree).digest();
}

/** A bounded entry: a row-major position in the output, and a direction, 0 down or 1 up. */
export interface LogEntry {
  readonly position: number;
  readonly direction: number;
}

function elementsOfBlock(section: LogSection, block: number): number {
  const each = blockElements(section.form);
  const left = section.elements - block * each;
  if (block < 0 || left <= 0) throw refuse("a block that the section has not");
  return Math.min(each, left);
}

/** The entries of a bounded block (10.2): positions ascend, and are elements of the block. */
export function readBoundedBlock(
  section: LogSection,
  block: number,
  bytes: Uint8Array,
): LogEntry[] {
  const elements = elementsOfBlock(section, block);
  if (bytes.length > LIMITS.logBlockBytes) throw refuse("a block of a log that is too long");
  if (bytes.length % 2 !== 0) throw refuse("a block of a log with half an entry");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const entries: LogEntry[] = [];
  let before = -1;
  for (let at = 0; at < bytes.length; at += 2) {
    const word = view.getUint16(at, true);
    const place = word >> 1;
    if (place <= before || place >= elements) throw refuse("positions that do not ascend");
    before = place;
    entries.push({ position: block * BOUNDED_BLOCK + place, direction: word & 1 });
  }
  return entries;
}

/** The bytes of a bounded block, of entries of the section in ascending order (10.2). */
export function writeBoundedBlock(block: number, entries: readonly LogEntry[]): Uint8Array {
  const own = entries.filter(({ position }) => Math.floor(position / BOUNDED_BLOCK) === block);
  const out = new Writer();
  for (const { position, direction } of own) out.u16(2 * (position % BOUNDED_BLOCK) + direction);
  return out.bytes();
}

/** The entries of a published block, 0 to 2 each (10.3). */
export function readPublishedBlock(
  section: LogSection,
  block: number,
  bytes: Uint8Array,
): Uint8Array {
  const elements = elementsOfBlock(section, block);
  if (bytes.length !== Math.ceil(elements / ENTRIES_OF_BYTE)) {
    throw refuse("a block of a log with another number of bytes");
  }
  const entries = new Uint8Array(elements);
  for (const [i, byte] of bytes.entries()) {
    if (byte > TOP_BYTE) throw refuse("a byte of a log above 242");
    let rest = byte;
    for (let at = ENTRIES_OF_BYTE * i; at < ENTRIES_OF_BYTE * (i + 1); at++) {
      if (at < elements) entries[at] = rest % 3;
      else if (rest % 3 !== 1) throw refuse("a missing entry of a log that is not 1");
      rest = Math.floor(rest / 3);
    }
  }
  return entries;
}

/** The bytes of published entries, before they are cut into blocks (10.3). */
export function packPublished(entries: Uint8Array): Uint8Array {
  return Uint8Array.from({ length: Math.ceil(entries.length / ENTRIES_OF_BYTE) }, (_, i) => {
    let byte = 0;
    for (let k = ENTRIES_OF_BYTE - 1; k >= 0; k--) {
      byte = 3 * byte + (entries[ENTRIES_OF_BYTE * i + k] ?? 1);
    }
    return byte;
  });
}

/** The blocks of packed published entries (10.3). */
export function publishedBlocks(packed: Uint8Array): Uint8Array[] {
  return Array.from({ length: Math.ceil(packed.length / PUBLISHED_BYTES) }, (_, i) =>
    packed.subarray(i * PUBLISHED_BYTES, (i + 1) * PUBLISHED_BYTES),
  );
}

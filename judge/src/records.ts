/** Schemas, records, long records and their parts (COMMITMENTS 8). */

import { compareNames, concatBytes } from "./bytes.ts";
import { refuse } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { leafHash, rootByInclusion, rootOf } from "./merkle.ts";
import { byteLength, headerOf, type TensorType } from "./tensors.ts";
import { Writer } from "./writer.ts";

export interface Field {
  readonly name: string;
  readonly type: TensorType;
}

/** A part of a record: bytes `at` to `at + length - 1` of a field, or the whole record (8.6.2). */
export interface Part {
  readonly field: string | undefined;
  readonly at: number;
  readonly length: number;
}

/** The fields of every record of a data set, in the order of 1.4. */
export class Schema {
  readonly fields: readonly Field[];
  /** The bytes of a record. */
  readonly bytes: number;
  /** Whether its records are long (8.6.1). */
  readonly long: boolean;

  /** `limit` is that of a record's bytes: 1 MiB in format 1, else 1 GiB (8.1). */
  constructor(fields: readonly Field[], limit: number) {
    if (fields.length > LIMITS.recordFields) throw refuse("a record of too many fields");
    this.fields = [...fields].sort((a, b) => compareNames(a.name, b.name));
    if (new Set(fields.map(({ name }) => name)).size !== fields.length) {
      throw refuse("a field of a record twice");
    }
    this.bytes = fields.reduce((sum, { type }) => sum + byteLength(type), 0);
    if (this.bytes < 1 || this.bytes > limit) throw refuse(`a record of ${this.bytes} bytes`);
    this.long = this.bytes > LIMITS.recordBytes;
  }

  /** The schema digest (8.2). */
  digest(): Uint8Array {
    const out = Writer.tagged("schema/1");
    out.list(this.fields, ({ name, type }) => out.text(name).raw(headerOf(type)));
    return out.digest();
  }

  /** The parts of a record: those of 8.6.2 of a long one, else one, which is the record. */
  parts(): Part[] {
    if (!this.long) return [{ field: undefined, at: 0, length: this.bytes }];
    return this.fields.flatMap(({ name, type }) => {
      const bytes = byteLength(type);
      return Array.from({ length: Math.ceil(bytes / LIMITS.recordPartBytes) }, (_, i) => {
        const at = i * LIMITS.recordPartBytes;
        return { field: name, at, length: Math.min(LIMITS.recordPartBytes, bytes - at) };
      });
    });
  }

  /** Which part holds a byte of a field, and where in it (8.1, 8.6.2). */
  place(field: string, byte: number): { part: number; at: number } {
    let [part, before] = [0, 0];
    for (const { name, type } of this.fields) {
      const bytes = byteLength(type);
      if (name === field) {
        if (!(byte >= 0 && byte < bytes)) throw refuse("a byte outside of the field");
        if (!this.long) return { part: 0, at: before + byte };
        const number = Math.floor(byte / LIMITS.recordPartBytes);
        return { part: part + number, at: byte % LIMITS.recordPartBytes };
      }
      before += bytes;
      part += Math.ceil(bytes / LIMITS.recordPartBytes);
    }
    throw refuse(`no field ${field}`);
  }
}

/** The leaf's hash of a long record whose parts have this root (8.6.3). */
function longRecordLeaf(parts: number, root: Uint8Array): Uint8Array {
  return leafHash(Writer.tagged("record/2").u64(parts).hash(root).digest());
}

/** The leaf's hash of a record, by the canonical bytes of its fields in the order of 1.4. */
export function recordLeaf(schema: Schema, fields: readonly Uint8Array[]): Uint8Array {
  const record = concatBytes(...fields);
  if (record.length !== schema.bytes) throw refuse("a record of other bytes than its schema's");
  if (!schema.long) return leafHash(record);
  const names = schema.fields.map(({ name }) => name);
  const hashes = schema.parts().map(({ field, at, length }) => {
    const bytes = fields[names.indexOf(field ?? "")] ?? new Uint8Array();
    return leafHash(bytes.subarray(at, at + length));
  });
  return longRecordLeaf(hashes.length, rootOf(hashes));
}

/** The data root over a tree of so many records (8.3, 8.6.4). */
function dataRootByTree(schema: Schema, count: number, tree: Uint8Array): Uint8Array {
  const out = Writer.tagged(schema.long ? "data/2" : "data/1");
  return out.hash(schema.digest()).u64(count).hash(tree).digest();
}

/** The data root of records with these leaves' hashes. */
export function dataRoot(schema: Schema, leaves: readonly Uint8Array[]): Uint8Array {
  return dataRootByTree(schema, leaves.length, rootOf(leaves));
}

/** A part with its two proofs: in the record, and of the record in the data (8.6.5). */
export interface PartProof {
  readonly bytes: Uint8Array;
  readonly inner: readonly Uint8Array[];
  readonly path: readonly Uint8Array[];
}

/** The data root that a part's proofs give, if they give one (8.3, 8.6.5). */
export function dataRootByPart(
  schema: Schema,
  record: number,
  count: number,
  part: number,
  proof: PartProof,
): Uint8Array | undefined {
  const parts = schema.parts();
  if (parts[part]?.length !== proof.bytes.length) return undefined;
  const inner = rootByInclusion(leafHash(proof.bytes), part, parts.length, proof.inner);
  if (inner === undefined) return undefined;
  const leaf = schema.long ? longRecordLeaf(parts.length, inner) : inner;
  const tree = rootByInclusion(leaf, record, count, proof.path);
  return tree && dataRootByTree(schema, count, tree);
}

import { describe, expect, test } from "vitest";

import { fromHex, toHex } from "../../src/bytes.ts";
import { Order } from "../../src/data/order.ts";
import { philox, type Words } from "../../src/numbers/philox.ts";
import { RefusedError } from "../../src/errors.ts";
import { LIMITS } from "../../src/limits.ts";
import { leafHash } from "../../src/merkle.ts";
import { dataRoot, dataRootByPart, recordLeaf, Schema } from "../../src/records.ts";
import type { Dtype } from "../../src/numbers/bits.ts";
import { byteLength } from "../../src/tensors.ts";
import { inclusionProof } from "../inclusion.ts";
import { unhex, vectors } from "./golden.ts";

interface FieldCase {
  name: string;
  dtype: Dtype;
  shape: number[];
}

function schemaOf(fields: readonly FieldCase[], limit: number): Schema {
  const typed = fields.map(({ name, dtype, shape }) => ({ name, type: { dtype, shape } }));
  return new Schema(typed, limit);
}

interface DataFile {
  fields: FieldCase[];
  records: string[];
  schema_digest: string;
  data_roots: string[];
  proof_of_7: string[];
  philox: { counter: Words; key: [number, number]; words: number[] }[];
  orders: { seed: string; records: number; epoch: number; order: number[] }[];
  batches: { seed: string; records: number; step: number; batch: number; indices: number[] }[];
}

describe("vectors/commit/data.json (COMMITMENTS 8)", () => {
  const file = vectors<DataFile>("commit/data.json");
  const schema = schemaOf(file.fields, LIMITS.recordBytes);
  const records = unhex(file.records);
  const leaves = records.map((record) => leafHash(record));

  test("schema, data roots and a record's proof", () => {
    expect(toHex(schema.digest())).toBe(file.schema_digest);
    const roots = [0, 1, 2, 11].map((n) => toHex(dataRoot(schema, leaves.slice(0, n))));
    expect(roots).toEqual(file.data_roots);
    const path = unhex(file.proof_of_7);
    expect(inclusionProof(leaves, 7)).toEqual(path);
    const bytes = records[7] ?? new Uint8Array();
    const found = dataRootByPart(schema, 7, 11, 0, { bytes, inner: [], path });
    expect(found && toHex(found)).toBe(file.data_roots[3]);
    const other = Uint8Array.from(bytes, (byte) => byte ^ 1);
    expect(dataRootByPart(schema, 7, 11, 0, { bytes: other, inner: [], path })).not.toEqual(found);
    for (const [record, part, proof] of [
      [11, 0, { bytes, inner: [], path }],
      [7, 1, { bytes, inner: [], path }],
      [7, 0, { bytes: bytes.subarray(1), inner: [], path }],
      [7, 0, { bytes, inner: path, path }],
      [7, 0, { bytes, inner: [], path: path.slice(1) }],
    ] as const) {
      expect(dataRootByPart(schema, record, 11, part, proof)).toBeUndefined();
    }
  });

  test("Philox4x32-10 (NUMERICS 8.1)", () => {
    for (const { counter, key, words } of file.philox) {
      expect(philox(counter, key)).toEqual(words);
    }
  });

  test("orders", () => {
    for (const { seed, records: count, epoch, order } of file.orders) {
      const own = new Order(BigInt(seed), count);
      expect(order.map((_, q) => own.at(BigInt(epoch), q))).toEqual(order);
    }
    expect(() => new Order(0n, 0)).toThrow(RefusedError);
  });

  test("batches of 8.4", () => {
    for (const { seed, records: count, step, batch, indices } of file.batches) {
      const own = new Order(BigInt(seed), count);
      const found = indices.map((_, i) => {
        const p = step * batch + i;
        return own.at(BigInt(Math.floor(p / count)), p % count);
      });
      expect(found).toEqual(indices);
      expect(indices).toHaveLength(batch);
    }
  });
});

interface RecordsCase {
  fields: FieldCase[];
  part_bytes: number[];
  part_hashes: string[];
  record_leaves: string[];
  data_roots: string[];
  proofs_of_record_2: { part: number; inner: string[]; path: string[] }[];
}

describe("vectors/commit/records.json (COMMITMENTS 8.6)", () => {
  const { cases } = vectors<{ cases: RecordsCase[] }>("commit/records.json");

  test.each(cases.map((c, number) => ({ c, number })))("case $number", ({ c }) => {
    const schema = schemaOf(c.fields, LIMITS.longRecordBytes);
    const recordOf = (r: number): Uint8Array[] =>
      schema.fields.map(({ type }, k) =>
        Uint8Array.from({ length: byteLength(type) }, (_, i) => (i * 37 + 11 * r + k) % 61),
      );
    const parts = schema.parts();
    expect(parts.map(({ length }) => length)).toEqual(c.part_bytes);
    const leaves = [0, 1, 2].map((r) => recordLeaf(schema, recordOf(r)));
    expect(leaves.map(toHex)).toEqual(c.record_leaves);
    const roots = [1, 2, 3].map((n) => toHex(dataRoot(schema, leaves.slice(0, n))));
    expect(roots).toEqual(c.data_roots);
    const fields = recordOf(2);
    const names = schema.fields.map(({ name }) => name);
    for (const { part, inner, path } of c.proofs_of_record_2) {
      const { field, at, length } = parts[part] ?? { field: undefined, at: 0, length: 0 };
      const held = fields[Math.max(0, names.indexOf(field ?? ""))] ?? new Uint8Array();
      const bytes = held.subarray(at, at + length);
      expect(toHex(leafHash(bytes))).toBe(c.part_hashes[part]);
      const proof = { bytes, inner: unhex(inner), path: unhex(path) };
      const found = dataRootByPart(schema, 2, 3, part, proof);
      expect(found && toHex(found)).toBe(c.data_roots[2]);
      if (field !== undefined) {
        const start = schema.place(field, at);
        expect(start).toEqual({ part, at: 0 });
        expect(schema.place(field, at + length - 1)).toEqual({ part, at: length - 1 });
      }
      const other = { ...proof, inner: proof.inner.slice(1) };
      if (inner.length > 0) expect(dataRootByPart(schema, 2, 3, part, other)).toBeUndefined();
    }
  });
});

test("what makes no record (COMMITMENTS 8.1, 11.1)", () => {
  const u8 = (name: string, size: number): FieldCase => ({ name, dtype: "u8", shape: [size] });
  for (const fields of [
    [],
    [u8("a", 0)],
    [u8("a", 2 ** 20 + 1)],
    [u8("a", 1), u8("a", 1)],
    Array.from({ length: 257 }, (_, i) => u8(`f${i}`, 1)),
  ]) {
    expect(() => schemaOf(fields, LIMITS.recordBytes)).toThrow(RefusedError);
  }
  expect(schemaOf([u8("a", 2 ** 30)], LIMITS.longRecordBytes).long).toBe(true);
  expect(() => schemaOf([u8("a", 2 ** 30), u8("b", 1)], LIMITS.longRecordBytes)).toThrow();
  const schema = schemaOf([u8("b", 3), u8("a", 2)], LIMITS.recordBytes);
  expect(schema.place("b", 1)).toEqual({ part: 0, at: 3 });
  expect(() => schema.place("b", 3)).toThrow(RefusedError);
  expect(() => schema.place("c", 0)).toThrow(RefusedError);
  expect(() => recordLeaf(schema, [fromHex("00"), fromHex("00")])).toThrow(RefusedError);
});

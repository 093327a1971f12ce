import { describe, expect, test } from "vitest";

import { concatBytes, fromHex, toHex } from "../../src/bytes.ts";
import { RefusedError } from "../../src/errors.ts";
import {
  blockCount,
  logDigest,
  type LogSection,
  packPublished,
  publishedBlocks,
  readBoundedBlock,
  readPublishedBlock,
  sectionDigest,
  writeBoundedBlock,
} from "../../src/logs.ts";
import { leafHash, rootOf } from "../../src/merkle.ts";
import { sha256 } from "../../src/sha256.ts";
import { vectors } from "./golden.ts";

interface File {
  bounded: {
    node: number;
    output: number;
    elements: number;
    entries: [number, number][];
    blocks_sha256: string;
    digest: string;
  }[];
  published: {
    node: number;
    output: number;
    entries: string;
    bytes_sha256: string;
    digest: string;
  }[];
  logs: { step: number; sections: string[]; digest: string }[];
}

describe("vectors/commit/log.json (COMMITMENTS 10)", () => {
  const file = vectors<File>("commit/log.json");
  const digestOf = (section: LogSection, blocks: readonly Uint8Array[]): string =>
    toHex(sectionDigest(section, rootOf(blocks.map((block) => leafHash(block)))));

  test("bounded sections", () => {
    for (const c of file.bounded) {
      const section: LogSection = { ...c, form: "bounded" };
      const entries = c.entries.map(([position, direction]) => ({ position, direction }));
      const blocks = Array.from({ length: blockCount(section) }, (_, i) =>
        writeBoundedBlock(i, entries),
      );
      expect(toHex(sha256(concatBytes(...blocks)))).toBe(c.blocks_sha256);
      expect(digestOf(section, blocks)).toBe(c.digest);
      const read = blocks.flatMap((block, i) => readBoundedBlock(section, i, block));
      expect(read).toEqual(entries);
    }
  });

  test("published sections", () => {
    for (const c of file.published) {
      const entries = Uint8Array.from(c.entries, Number);
      const section: LogSection = { ...c, elements: entries.length, form: "published" };
      const packed = packPublished(entries);
      const blocks = publishedBlocks(packed);
      expect(toHex(sha256(packed))).toBe(c.bytes_sha256);
      expect(blocks).toHaveLength(blockCount(section));
      expect(digestOf(section, blocks)).toBe(c.digest);
      const read = blocks.map((block, i) => readPublishedBlock(section, i, block));
      expect(concatBytes(...read)).toEqual(entries);
    }
  });

  test("logs", () => {
    for (const { step, sections, digest } of file.logs) {
      expect(toHex(logDigest(step, sections.map(fromHex)))).toBe(digest);
    }
  });
});

test("bytes that are no block (COMMITMENTS 10.2, 10.3)", () => {
  const bounded: LogSection = { node: 0, output: 0, elements: 4098, form: "bounded" };
  for (const bytes of ["00", "00000000", "02000100", "0200020003", "0020"]) {
    expect(() => readBoundedBlock(bounded, 0, fromHex(bytes)), bytes).toThrow(RefusedError);
  }
  expect(readBoundedBlock(bounded, 1, fromHex("0300"))).toEqual([{ position: 4097, direction: 1 }]);
  expect(() => readBoundedBlock(bounded, 1, fromHex("0400"))).toThrow(RefusedError);
  expect(() => readBoundedBlock(bounded, 2, new Uint8Array())).toThrow(RefusedError);
  const published: LogSection = { node: 0, output: 0, elements: 6, form: "published" };
  expect(readPublishedBlock(published, 0, fromHex("f279"))).toHaveLength(6);
  for (const bytes of ["f2", "f27900", "f379", "f200", "f2f2"]) {
    expect(() => readPublishedBlock(published, 0, fromHex(bytes)), bytes).toThrow(RefusedError);
  }
});

import { describe, expect, test } from "vitest";

import { fromHex } from "../../src/bytes.ts";
import {
  consistencyProof,
  leafHash,
  multiProof,
  multiProofLength,
  rootByInclusion,
  rootByMulti,
  rootOf,
  verifiesConsistency,
  verifiesInclusion,
} from "../../src/merkle.ts";
import { inclusionProof } from "../inclusion.ts";
import { replaced, unhex, vectors } from "./golden.ts";

interface File {
  leaf_data: string[];
  roots: string[];
  inclusion: { index: number; size: number; proof: string[] }[];
  consistency: { old: number; new: number; proof: string[] }[];
  multi: { size: number; leaves: number[]; proof: string[] }[];
}

describe("vectors/commit/merkle.json (COMMITMENTS 2)", () => {
  const file = vectors<File>("commit/merkle.json");
  const leaves = file.leaf_data.map((data) => leafHash(fromHex(data)));
  const roots = unhex(file.roots);
  const root = (n: number): Uint8Array => roots[n] ?? new Uint8Array();
  const wrong = new Uint8Array(32);

  test("roots", () => {
    expect(roots.map((_, n) => rootOf(leaves, 0, n))).toEqual(roots);
  });

  test("inclusion proofs, and no other length, index, size or hash", () => {
    for (const { index, size, proof: texts } of file.inclusion) {
      const [proof, leaf] = [unhex(texts), leaves[index] ?? wrong];
      expect(inclusionProof(leaves.slice(0, size), index)).toEqual(proof);
      expect(verifiesInclusion(leaf, index, size, proof, root(size))).toBe(true);
      expect(verifiesInclusion(wrong, index, size, proof, root(size))).toBe(false);
      expect(verifiesInclusion(leaf, index, size, [...proof, wrong], root(size))).toBe(false);
      expect(verifiesInclusion(leaf, size, size, proof, root(size))).toBe(false);
      expect(verifiesInclusion(leaf, -1, size, proof, root(size))).toBe(false);
      if (size === 1) continue;
      expect(verifiesInclusion(leaf, index, size, proof.slice(1), root(size))).toBe(false);
      const short = [...proof.slice(1), new Uint8Array(31)];
      expect(rootByInclusion(leaf, index, size, short)).toBeUndefined();
      for (const [at] of proof.entries()) {
        expect(verifiesInclusion(leaf, index, size, replaced(proof, at, wrong), root(size))).toBe(
          false,
        );
      }
    }
  });

  test("the proof of a leaf says nothing about the number of leaves (2.4)", () => {
    const proof = inclusionProof(leaves.slice(0, 3), 0);
    expect(verifiesInclusion(leaves[0] ?? wrong, 0, 4, proof, root(3))).toBe(true);
  });

  test("consistency proofs", () => {
    for (const { old, new: size, proof: texts } of file.consistency) {
      const proof = unhex(texts);
      expect(consistencyProof(leaves.slice(0, size), old)).toEqual(proof);
      expect(verifiesConsistency(old, size, root(old), root(size), proof)).toBe(true);
      expect(verifiesConsistency(old, size, root(old), root(size), [...proof, wrong])).toBe(false);
      expect(verifiesConsistency(old, size, wrong, root(size), proof)).toBe(false);
      expect(verifiesConsistency(old, size, root(old), wrong, proof)).toBe(old === 0 && size > 0);
      expect(verifiesConsistency(size + 1, size, root(old), root(size), proof)).toBe(false);
      expect(verifiesConsistency(old, size, root(old), new Uint8Array(31), proof)).toBe(false);
      for (const [at] of proof.entries()) {
        const altered = replaced(proof, at, wrong);
        expect(verifiesConsistency(old, size, root(old), root(size), altered)).toBe(false);
        const without = proof.filter((_, i) => i !== at);
        expect(verifiesConsistency(old, size, root(old), root(size), without)).toBe(false);
      }
    }
  });

  test("multi-proofs", () => {
    for (const { size, leaves: set, proof: texts } of file.multi) {
      const proof = unhex(texts);
      const own = set.map((leaf) => leaves[leaf] ?? wrong);
      expect(multiProof(leaves.slice(0, size), set)).toEqual(proof);
      expect(multiProofLength(set, size)).toBe(proof.length);
      expect(rootByMulti(set, own, size, proof)).toEqual(root(size));
      expect(rootByMulti(set, own, size, [...proof, wrong])).toBeUndefined();
      if (proof.length > 0) expect(rootByMulti(set, own, size, proof.slice(1))).toBeUndefined();
      expect(rootByMulti(set, replaced(own, 0, new Uint8Array(31)), size, proof)).toBeUndefined();
      expect(rootByMulti(set, replaced(own, 0, wrong), size, proof)).not.toEqual(root(size));
    }
    expect(file.multi).toHaveLength(141);
  });

  test("a multi-proof is of a set that is not empty, ascends, and is in the tree", () => {
    for (const set of [[], [1, 0], [1, 1], [-1], [8], [0.5]]) {
      expect(() => multiProofLength(set, 8)).toThrow();
    }
  });

  test("trees of 2^40 leaves are walked without being made", () => {
    expect(multiProofLength([0, 2 ** 40 - 1], 2 ** 40)).toBe(78);
  });
});

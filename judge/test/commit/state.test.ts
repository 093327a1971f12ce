import { describe, expect, test } from "vitest";

import { fromHex, toHex, toUtf8 } from "../../src/bytes.ts";
import { leafHash, rootOf } from "../../src/merkle.ts";
import { nodeDigest, nodeRoot, treeByNode } from "../../src/nodes.ts";
import { sha256 } from "../../src/sha256.ts";
import {
  CHAIN_START,
  commitDigest,
  extendLogChain,
  extendLossChain,
  nextState,
  provesSlot,
  slotLeaf,
  slotOrder,
  stateRoot,
  stateRootsBy,
} from "../../src/state.ts";
import { inclusionProof } from "../inclusion.ts";
import { unhex, vectors } from "./golden.ts";

interface NodeFile {
  program_digest: string;
  cases: {
    step: number;
    index: number;
    operator: string;
    attributes: string;
    inputs: string[];
    outputs: string[];
    digest: string;
  }[];
  node_roots: string[];
  proof_of_2: string[];
}

test("vectors/commit/node.json (COMMITMENTS 4)", () => {
  const file = vectors<NodeFile>("commit/node.json");
  const digests = file.cases.map((c) =>
    nodeDigest(fromHex(file.program_digest), c.step, c.index, {
      operator: c.operator,
      attributes: fromHex(c.attributes),
      inputs: unhex(c.inputs),
      outputs: unhex(c.outputs),
    }),
  );
  expect(digests.map(toHex)).toEqual(file.cases.map((c) => c.digest));
  const leaves = digests.map((digest) => leafHash(digest));
  const roots = [0, 1, 2, 3, 4].map((n) => nodeRoot(n, rootOf(leaves, 0, n)));
  expect(roots.map(toHex)).toEqual(file.node_roots);
  const proof = unhex(file.proof_of_2);
  expect(inclusionProof(leaves, 2)).toEqual(proof);
  expect(treeByNode(digests[2] ?? CHAIN_START, 2, 4, proof)).toEqual(rootOf(leaves));
  expect(treeByNode(digests[2] ?? CHAIN_START, 2, 4, proof.slice(1))).toBeUndefined();
});

interface StateFile {
  slots: Record<string, string>;
  order: string[];
  state_root: string;
  empty_state_root: string;
  slot_proofs: Record<string, string[]>;
  loss_bits: number[];
  loss_chains: string[];
  log_chain: string;
  commit: {
    program_digest: string;
    step: number;
    index: number;
    loss_bits: number;
    loss_chain: string;
    log_chain: string;
    next_state_root: string;
    digest: string;
  };
}

describe("vectors/commit/state.json (COMMITMENTS 5)", () => {
  const file = vectors<StateFile>("commit/state.json");
  const slots = new Map(Object.entries(file.slots).map(([name, d]) => [name, fromHex(d)]));
  const digestOf = (name: string): Uint8Array => slots.get(name) ?? CHAIN_START;

  test("the order, the root and the proofs of slots", () => {
    expect(slotOrder(slots.keys())).toEqual(file.order);
    const root = stateRoot(slots);
    expect(toHex(root)).toBe(file.state_root);
    expect(toHex(stateRoot(new Map()))).toBe(file.empty_state_root);
    const leaves = file.order.map((name) => slotLeaf(name, digestOf(name)));
    for (const [i, name] of file.order.entries()) {
      const proof = unhex(file.slot_proofs[name] ?? []);
      expect(inclusionProof(leaves, i)).toEqual(proof);
      expect(provesSlot(name, digestOf(name), i, slots.size, proof, root)).toBe(true);
      expect(provesSlot(name, CHAIN_START, i, slots.size, proof, root)).toBe(false);
      expect(provesSlot(`${name}x`, digestOf(name), i, slots.size, proof, root)).toBe(false);
      expect(provesSlot(name, digestOf(name), i, slots.size + 1, proof, root)).toBe(false);
    }
  });

  test("roots of slots that are equal but for one", () => {
    const others = new Map(slots);
    const [name = ""] = others.keys();
    others.delete(name);
    const digests = [digestOf(name), sha256()];
    const roots = digests.map((digest) => stateRoot(new Map([...others, [name, digest]])));
    expect(stateRootsBy(name, digests, others)).toEqual(roots);
  });

  test("a record of more digests than a call takes arguments", () => {
    const many = Array.from({ length: 200_000 }, () => CHAIN_START);
    const node = { operator: "aten.mm", attributes: sha256(), inputs: many, outputs: [] };
    expect(nodeDigest(CHAIN_START, 0, 0, node)).toHaveLength(32);
  });

  test("the chains", () => {
    let chain: Uint8Array = CHAIN_START;
    for (const [step, bits] of file.loss_bits.entries()) {
      chain = extendLossChain(chain, step, bits);
      expect(toHex(chain)).toBe(file.loss_chains[step]);
    }
    const log = extendLogChain(CHAIN_START, 0, sha256(toUtf8("a log")));
    expect(toHex(log)).toBe(file.log_chain);
    const nans = [0x7fc00000, 0xffc00001, 0x7f800001].map((bits) =>
      extendLossChain(chain, 0, bits),
    );
    expect(new Set(nans.map(toHex)).size).toBe(1);
  });

  test("the COMMIT node", () => {
    const c = file.commit;
    const commit = {
      step: c.step,
      slots,
      lossBits: c.loss_bits,
      lossChain: fromHex(c.loss_chain),
      logChain: fromHex(c.log_chain),
    };
    expect(toHex(stateRoot(nextState(commit)))).toBe(c.next_state_root);
    expect(toHex(commitDigest(fromHex(c.program_digest), c.index, commit))).toBe(c.digest);
  });
});

import { expect, test } from "vitest";

import { fromHex, toHex } from "../../src/bytes.ts";
import { consistencyProof, multiProof, rootOf, verifiesConsistency } from "../../src/merkle.ts";
import {
  checkpointCount,
  checkpointLeaf,
  checkpointStep,
  continuesDigest,
  provesCheckpoint,
  provesCheckpoints,
  provesContinuation,
  runRoot,
} from "../../src/runs.ts";
import { CHAIN_START, chainDigest, slotLeaf, slotOrder, stateRoot } from "../../src/state.ts";
import { inclusionProof } from "../inclusion.ts";
import { unhex, vectors } from "./golden.ts";

interface File {
  job_digest: string;
  checkpoints: { step: number; state_root: string }[];
  run_roots: string[];
  tree_roots: string[];
  proofs: string[][];
  consistency_3_6: string[];
  schedules: { last: number; interval: number; steps: number[] }[];
}

test("vectors/commit/run.json (COMMITMENTS 6)", () => {
  const file = vectors<File>("commit/run.json");
  const job = fromHex(file.job_digest);
  const points = file.checkpoints.map((c, index) => ({
    index,
    step: c.step,
    root: fromHex(c.state_root),
  }));
  const leaves = points.map(({ step, root }) => checkpointLeaf(step, root));
  const run = fromHex(file.run_roots.at(-1) ?? "");
  for (const [i, point] of points.entries()) {
    expect(toHex(runRoot(job, points.slice(0, i + 1)))).toBe(file.run_roots[i]);
    expect(toHex(rootOf(leaves, 0, i + 1))).toBe(file.tree_roots[i]);
    const proof = unhex(file.proofs[i] ?? []);
    expect(inclusionProof(leaves, i)).toEqual(proof);
    expect(provesCheckpoint(job, point, 6, proof, run)).toBe(true);
    expect(provesCheckpoint(job, { ...point, step: point.step + 1 }, 6, proof, run)).toBe(false);
  }
  const shown = points.filter(({ index }) => index % 2 === 1);
  const multi = multiProof(leaves, [1, 3, 5]);
  expect(provesCheckpoints(job, shown, 6, multi, run)).toBe(true);
  expect(provesCheckpoints(job, shown, 6, multi.slice(1), run)).toBe(false);
  const grown = unhex(file.consistency_3_6);
  expect(consistencyProof(leaves, 3)).toEqual(grown);
  expect(verifiesConsistency(3, 6, rootOf(leaves, 0, 3), rootOf(leaves), grown)).toBe(true);
  for (const { last, interval, steps } of file.schedules) {
    const count = checkpointCount(last, interval);
    const found = Array.from({ length: count }, (_, i) => checkpointStep(i, last, interval));
    expect(found).toEqual(steps);
    expect(() => checkpointStep(count, last, interval)).toThrow();
  }
});

interface ContinuesFile {
  continues: {
    run: { job_digest: string; run_root: string; final_step: number; final_state_root: string };
    digest: string;
  };
}

test("the run that a job continues, in vectors/commit/job-2.json (COMMITMENTS 7.6.8)", () => {
  const { run, digest } = vectors<ContinuesFile>("commit/job-2.json").continues;
  const found = continuesDigest({
    jobDigest: fromHex(run.job_digest),
    runRoot: fromHex(run.run_root),
    finalStep: run.final_step,
    finalStateRoot: fromHex(run.final_state_root),
  });
  expect(toHex(found)).toBe(digest);
});

test("a continued run's genesis state has the final state's slots (COMMITMENTS 7.6.8)", () => {
  const chains = { loss: new Uint8Array(32).fill(1), log: new Uint8Array(32).fill(2) };
  const state = (loss: Uint8Array, log: Uint8Array): Map<string, Uint8Array> =>
    new Map([
      ["buffer.a", new Uint8Array(32).fill(9)],
      ["chain.log", chainDigest(log)],
      ["chain.loss", chainDigest(loss)],
      ["param.b", new Uint8Array(32).fill(8)],
    ]);
  const last = state(chains.loss, chains.log);
  const names = slotOrder(last.keys());
  const leaves = names.map((name) => slotLeaf(name, last.get(name) ?? CHAIN_START));
  const proof = multiProof(leaves, [1, 2]);
  const genesis = stateRoot(state(CHAIN_START, CHAIN_START));
  expect(provesContinuation(names, chains, proof, stateRoot(last), genesis)).toBe(true);
  expect(provesContinuation(names, chains, proof, genesis, genesis)).toBe(false);
  expect(provesContinuation(names, chains, proof, stateRoot(last), stateRoot(last))).toBe(false);
  expect(provesContinuation(names, chains, proof.slice(1), stateRoot(last), genesis)).toBe(false);
});

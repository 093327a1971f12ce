import { describe, expect, test } from "vitest";

import { toHex, toUtf8 } from "../../src/bytes.ts";
import { readTerms } from "../../src/job/read.ts";
import { casesOf, fileOf, orRefused, TABLE, type List } from "../program/cases.ts";

/** A case's manifest, and its programs by the names of their files. */
function filesOf(list: List, name: string, names: readonly string[]) {
  const one = casesOf(list).find((found) => found.name === name);
  if (one === undefined) throw new Error(`no case ${name}`);
  const texts = one.programs ?? [casesOf("programs")[0]?.text ?? ""];
  const programs = new Map(names.map((file, k) => [file, toUtf8(texts[k] ?? "")]));
  return { manifest: fileOf(one), programs };
}

const NAMES = ["step", "step-short", "check", "check-short"].map((name) => `program-${name}.txt`);

test("a job of format 1 (COMMITMENTS 7.1, 8.4)", () => {
  const terms = readTerms(filesOf("jobs", "a job", ["program.txt"]), TABLE);
  expect([...terms.slots.keys()]).toEqual(["buffer.kept", "chain.log", "chain.loss", "param.w"]);
  expect(terms).toMatchObject({ format: 1, steps: 3, checkpointInterval: 2, logs: null });
  expect(terms.contract).toEqual({ family: "ordered" });
  const step = terms.step(2);
  const { program, data, key, batchNumber } = step;
  expect(program.nodeCount).toBe(12);
  expect(program.batchInput("batch.x")).toEqual({ first: 0, field: "x" });
  expect(program.nextStates).toEqual([
    { slot: "buffer.kept", value: { from: "input", name: "buffer.kept" } },
    { slot: "param.w", value: { from: "node", node: 10, output: 0 } },
  ]);
  expect(program.loss).toEqual({ from: "node", node: 5, output: 0 });
  expect([data?.number, data?.records, batchNumber]).toEqual([0, 5, 2]);
  expect(step.scalar("scalar.lr")).toBe(0.1);
  expect(key).toEqual([2n ** 63n - 1n, 2n]);
  const read = [0, 1, 2].flatMap((t) => [0, 1].map((place) => terms.step(t).record(place)));
  expect(read.slice(0, 5).sort()).toEqual([0, 1, 2, 3, 4]);
});

test("a table has one value for each step (COMMITMENTS 7.3)", () => {
  const terms = readTerms(filesOf("jobs", "a table", ["program.txt"]), TABLE);
  const values = Array.from({ length: terms.steps }, (_, t) => terms.step(t).scalar("scalar.lr"));
  expect(new Set(values).size).toBeGreaterThan(1);
  expect(orRefused(() => terms.step(0).scalar("scalar.none"))).toBe("refused");
});

describe("a job of format 3 (COMMITMENTS 7.7)", () => {
  const files = filesOf("jobs_3", "a job", NAMES);
  const terms = readTerms(files, TABLE);

  test("the programs of its turns, micro-batches and all", () => {
    const counts = [0, 1, 2, 3, 4, 5].map((t) => terms.step(t).program.nodeCount);
    expect(counts).toEqual([6, 6, 4, 2, 2, 2]);
    const { program } = terms.step(0);
    expect(program.batchInput("batch.x#1")).toEqual({ first: 1, field: "x" });
    expect(program.node(2).operands).toEqual([
      { from: "node", node: 0, output: 0 },
      { from: "input", name: "batch.x#1" },
    ]);
    expect(program.node(4).operandTypes).toHaveLength(2);
  });

  test("an epoch has every record once; passes read in order", () => {
    const sizes = [2, 2, 1, 3, 3, 1];
    const records = (from: number): number[][] =>
      sizes.map((size, k) =>
        Array.from({ length: size }, (_, i) => terms.step(from + k).record(i)),
      );
    for (const from of [0, 6, 12]) {
      const read = records(from);
      expect(read.slice(0, 3).flat().sort()).toEqual([0, 1, 2, 3, 4]);
      expect(read.slice(3).flat()).toEqual([0, 1, 2, 3, 4, 5, 6]);
    }
    expect(records(0).slice(0, 3)).not.toEqual(records(6).slice(0, 3));
    expect(orRefused(() => terms.step(2).record(1))).toBe("refused");
  });

  test("steps that the job does not have, and files that it does not have, are refused", () => {
    for (const t of [-1, 18, 0.5, NaN]) expect(orRefused(() => terms.step(t))).toBe("refused");
    const { manifest, programs } = files;
    const fewer = new Map([...programs].slice(1));
    const other = new Map([...fewer, ["program.txt", toUtf8("")] as const]);
    for (const given of [fewer, other, new Map([...programs, ["more", toUtf8("")] as const])]) {
      expect(orRefused(() => readTerms({ manifest, programs: given }, TABLE))).toBe("refused");
    }
    const inOrder = readTerms({ manifest, programs: [...programs.values()] }, TABLE);
    expect(toHex(inOrder.jobDigest)).toBe(toHex(terms.jobDigest));
  });
});

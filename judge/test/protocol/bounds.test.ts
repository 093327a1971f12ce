/** The bounds of evidence that follow from its job (PROTOCOL 8.5, vectors/bounds/README.md). */
import { describe, expect, test } from "vitest";

import { LIMITS } from "../../src/limits.ts";
import { multiProofLength, multiProofMost } from "../../src/merkle.ts";
import { boundsOf, FRAME_BYTES } from "../../src/protocol/bounds.ts";
import { extremesOf } from "../../src/protocol/extremes.ts";
import { judge } from "../../src/protocol/judge.ts";
import { WithoutVerdict } from "../../src/protocol/play.ts";
import { Room } from "../../src/protocol/room.ts";
import { answerLength } from "../../src/protocol/sizes.ts";
import { sha256 } from "../../src/sha256.ts";
import { Writer } from "../../src/writer.ts";
import { vectors } from "../commit/golden.ts";
import { Bundle, bundleNames } from "./bundles.ts";
import { putTogether, takenApart, type Parts } from "./written.ts";

interface File {
  readonly arities: readonly number[];
  readonly jobs: readonly {
    readonly bundle: string;
    readonly job: number;
    readonly bounds: readonly (readonly [number, number])[];
  }[];
}

const FILE = vectors<File>("bounds/evidence.json");
/** The messages of any length, which the figures of the vectors leave out. */
const FREE = 2;
/** 16 MiB less all that is no true answer: the package counts no further. */
const MOST = LIMITS.evidenceBytes - FRAME_BYTES;
const HEAD_BYTES = 9;

const own = new Bundle("clauses");
const [one] = own.cases;
if (one === undefined) throw new Error("a bundle without cases");
const terms = own.terms(one);
const parts = takenApart(own.evidence(one));
const bounds = boundsOf(terms, parts.arity);
const judged = (evidence: Uint8Array) => () => judge(evidence, terms, { referees: [] });

/** Evidence of so many bytes, filled up behind its last part. */
function filled(content: Parts, length: number): Uint8Array {
  const bytes = putTogether(content).subarray(0, -32);
  const longer = new Uint8Array(length - 32);
  longer.set(bytes);
  return new Writer().raw(longer).raw(sha256(longer)).bytes();
}

describe.each(bundleNames())("%s", (name) => {
  const bundle = new Bundle(name);

  test("all its evidence fits: the messages, and those before the last two", () => {
    for (const each of bundle.cases) {
      if ("error" in each.found) continue;
      const { arity, messages } = takenApart(bundle.evidence(each));
      const most = boundsOf(bundle.terms(each), arity);
      const bytes = messages.map((message) => HEAD_BYTES + message.bytes.length);
      const before = bytes.slice(0, -FREE).reduce((sum, length) => sum + length, 0);
      expect(messages.length, each.name).toBeLessThanOrEqual(most.messages);
      expect(before, each.name).toBeLessThanOrEqual(most.bytes - FRAME_BYTES);
    }
  });

  test("no job allows more than its figures", () => {
    const jobs = FILE.jobs.filter((job) => job.bundle === name);
    expect(jobs.length).toBeGreaterThan(0);
    for (const { job, bounds: figures } of jobs) {
      const of = bundle.cases.find((each) => each.job === job);
      if (of === undefined) throw new Error(`no case of job ${job}`);
      for (const [k, [messages, bytes]] of figures.entries()) {
        const most = boundsOf(bundle.terms(of), FILE.arities[k] ?? 0);
        expect(most.messages - FREE).toBeLessThanOrEqual(messages);
        expect(most.bytes - FRAME_BYTES).toBeLessThanOrEqual(Math.min(bytes, MOST));
      }
    }
  });
});

test("evidence of more bytes than its job allows is refused, however it goes on", () => {
  expect(bounds.bytes).toBeLessThan(LIMITS.evidenceBytes);
  expect(judged(filled(parts, bounds.bytes + 1))).toThrow("more evidence than the job allows");
  expect(judged(filled(parts, bounds.bytes))).toThrow("left over");
});

test("evidence of more messages than its job allows is refused", () => {
  const empty = (count: number): Uint8Array => {
    const messages = Array.from({ length: count }, () => ({
      party: 0 as const,
      bytes: new Uint8Array(),
    }));
    return putTogether({ ...parts, messages });
  };
  expect(judged(empty(bounds.messages + 1))).toThrow(`is over ${bounds.messages}`);
  expect(judged(empty(bounds.messages))).not.toThrow("is over");
});

test("a job with logs allows more messages, and a larger arity longer ones", () => {
  const logs = new Bundle("logs");
  const [logged] = logs.cases;
  if (logged === undefined) throw new Error("a bundle without cases");
  const all = boundsOf(logs.terms(logged), 2);
  expect(all.messages).toBeGreaterThan(
    1.9 * boundsOf({ ...logs.terms(logged), logs: null }, 2).messages,
  );
  const [narrow, wide] = [2, 3].map((arity) => boundsOf({ ...terms, steps: 1e6 }, arity));
  expect(narrow?.messages).toBeGreaterThan(wide?.messages ?? 0);
});

test("the last micro-batch has the largest nodes", () => {
  const bundle = new Bundle("format-two");
  const many = bundle.cases
    .map((each) => bundle.terms(each))
    .filter(({ programs }) => programs.some(({ lastMicroBatch }) => lastMicroBatch > 0));
  expect(many.length).toBeGreaterThan(0);
  for (const each of new Set(many)) {
    const all = each.programs.map((program) => ({ ...program, lastMicroBatch: 0 }));
    expect(extremesOf(each)).toEqual(extremesOf({ ...each, programs: all }));
  }
});

test("a round whose true answers have no room ends the game", () => {
  const query = { kind: "nodes", step: 0 } as const;
  const asked = [{ party: 0, query }] as const;
  const room = (answers: number): Room =>
    new Room(terms, { messages: 9, bytes: FRAME_BYTES + answers }, [2, 2]);
  const length = HEAD_BYTES + answerLength(terms, query, 2, 0);
  expect(() => {
    room(length).ask(asked, 0);
  }).not.toThrow();
  expect(() => {
    room(length - 1).ask(asked, 0);
  }).toThrow(WithoutVerdict);
});

test("no multi-proof has more hashes than the most of its number of leaves", () => {
  for (let size = 1; size <= 12; size++) {
    const most = new Map<number, number>();
    for (let set = 1; set < 2 ** size; set++) {
      const leaves = Array.from({ length: size }, (_, k) => k).filter((k) => (set >> k) & 1);
      const length = multiProofLength(leaves, size);
      most.set(leaves.length, Math.max(length, most.get(leaves.length) ?? 0));
    }
    for (const [count, length] of most) {
      const bound = multiProofMost(count, size);
      expect(length).toBeLessThanOrEqual(bound);
      // A whole tree has such leaves.
      if ([1, 2, 4, 8].includes(size)) expect(length).toBe(bound);
    }
  }
});

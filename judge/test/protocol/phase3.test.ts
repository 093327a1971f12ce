/**
 * Phase 3 of the evidence of vectors/protocol about a single node: the answers of the file, by their
 * queries, go to `judgeOutput`, which has to reach the verdict of the file.
 */
import { describe, expect, test } from "vitest";
import { equalBytes, toHex } from "../../src/bytes.ts";
import { readTerms } from "../../src/job/read.ts";
import { Found } from "../../src/protocol/found.ts";
import { agreedOperands } from "../../src/protocol/node.ts";
import { judgeOutput } from "../../src/protocol/output.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import { Reader } from "../../src/reader.ts";
import { LIMITS } from "../../src/limits.ts";
import { readTable } from "../../src/operators/index.ts";
import { Writer } from "../../src/writer.ts";
import { fail } from "../operators/calls.ts";
import { bytesOfVectors, jsonOfVectors } from "../vectors.ts";
import { played } from "./game.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));

type Place = readonly [number, number];

interface Case {
  readonly name: string;
  readonly job: number;
  readonly evidence: Place;
  readonly found: {
    readonly phase: number;
    readonly convicted: readonly { party: "A" | "B"; clause: string; case: string }[];
    readonly element: number | null;
    readonly quantity: string | null;
    readonly claimed: readonly string[];
    readonly value: string;
    readonly choices: { left: number; taken: number };
    readonly terms: number;
  };
}

interface Message {
  readonly party: Party;
  readonly query: Uint8Array;
  readonly body: Uint8Array;
}

/** The layout of a query of phase 3 (PROTOCOL 2.1). */
function bytesOf(query: Query): Uint8Array {
  const out = (kind: number): Writer => Writer.tagged("query/1").u8(kind);
  const u64s = (writer: Writer, numbers: readonly number[]): Writer =>
    writer.list(numbers, (n) => writer.u64(n));
  switch (query.kind) {
    case "tensor hashes":
    case "leaf": {
      const { step, node, side, operand } = query;
      const isLeaf = query.kind === "leaf";
      const at = out(isLeaf ? 9 : 8)
        .u64(step)
        .u64(node)
        .u8(side)
        .u64(operand);
      return (
        isLeaf ? at.u64(query.leaf) : at.u64(query.range.first).u64(query.range.count)
      ).bytes();
    }
    case "values": {
      const { step, node, output, element, path, view } = query;
      const at = u64s(out(10).u64(step).u64(node).u64(output).u64(element), path);
      const [code, ...numbers] =
        view.view === "needs"
          ? [1]
          : view.view === "blocks"
            ? [2, view.level, view.index]
            : view.view === "states"
              ? [3, view.first, view.last, view.stride]
              : view.view === "witness"
                ? [4]
                : [5, view.first, view.last];
      at.u8(code);
      for (let k = 0; k < 3; k++) at.u64(numbers[k] ?? 0);
      return at.bytes();
    }
    case "opening": {
      const { step, node, operand, leaves } = query;
      return u64s(out(11).u64(step).u64(node).u64(operand), leaves).bytes();
    }
    case "log":
      return out(13).u64(query.step).bytes();
    case "log block":
      return out(15).u64(query.step).u64(query.section).u64(query.block).bytes();
    default:
      return fail(`a query of kind ${query.kind}`);
  }
}

/** The messages of an evidence file (PROTOCOL 8.1, 2.3, 2.5). */
function messagesOf(evidence: Uint8Array): Message[] {
  const reader = new Reader(evidence);
  reader.tag("evidence/1");
  reader.hash();
  reader.u64();
  for (let k = 0; k < 2; k++) reader.blob(LIMITS.commitmentBytes, "a commitment");
  return reader.list(100000, 9, "messages", () => {
    const party = reader.u8() === 0 ? 0 : 1;
    const signed = new Reader(reader.blob(LIMITS.answerBytes, "an answer"));
    const answer = new Reader(signed.blob(LIMITS.answerBytes, "an answer"));
    answer.tag("answer/1");
    answer.hash();
    answer.hash();
    const query = answer.blob(LIMITS.queryBytes, "a query");
    if (answer.u8() !== 0) fail("unable");
    return { party, query, body: answer.take(answer.left) };
  });
}

/** The body of a query of kind `kind` by a party, the last one. */
function bodyOf(messages: readonly Message[], party: Party, kind: number): Reader | undefined {
  const place = "tallystick/query/1".length + 1;
  const found = messages.filter((one) => one.party === party && one.query[place] === kind).at(-1);
  return found && new Reader(found.body);
}

function recordOf(reader: Reader) {
  reader.text();
  reader.blob(LIMITS.attributeBytes, "attributes");
  const hashes = () => reader.hashes(LIMITS.proofHashes, "hashes");
  return { inputs: hashes(), outputs: hashes() };
}

/** The record of node 0, which party 0 and party 1 have opened. */
function nodeOf(messages: readonly Message[], party: Party) {
  const query = Writer.tagged("query/1").u8(6).u64(0).u64(0).bytes();
  const found = messages.find((one) => one.party === party && equalBytes(one.query, query));
  return found && recordOf(new Reader(found.body));
}

/** The root of state[1]: the last one of the proof of the run's checkpoints. */
function rootsOf(messages: readonly Message[], party: Party): [Uint8Array, Uint8Array] {
  const reader = bodyOf(messages, party, 1) ?? fail("no checkpoints");
  return [reader.hash(), reader.hash()];
}

const short = (convicted: readonly { party: string; clause: string; case: string }[]): string =>
  convicted.map((one) => `${one.party} ${one.clause} ${one.case}`).join("; ");

const BUNDLES = [
  "operators-ordered",
  "operators-rounded",
  "operators-bounded",
  "operators-published",
  "operators-exact",
  "operators-later",
  "operators-scatter",
  "operators-rank",
  "operators-whole",
  "operators-whole-bits",
  "operators-whole-narrow",
  "operators-fold",
  "operators-attention",
  "operators-answer",
  "operators-quantised",
  "operators-stored",
  "parts-exact",
  "parts-published",
  "sums",
];

describe("phase 3 of the vectors", () => {
  test.each(BUNDLES)("%s", (bundle) => {
    const file = jsonOfVectors(`protocol/${bundle}.json`) as {
      jobs: Record<string, Place>[];
      cases: Case[];
    };
    const data = new Uint8Array(bytesOfVectors(`protocol/${bundle}.bin`));
    const at = ([offset, length]: Place): Uint8Array => data.subarray(offset, offset + length);
    const wrong: string[] = [];
    let count = 0;
    for (const { name, job, evidence, found: due } of file.cases) {
      if (due.phase !== 3) continue;
      const messages = messagesOf(at(evidence));
      const [own, other] = [nodeOf(messages, 0), nodeOf(messages, 1)];
      if (own === undefined || other === undefined) continue;
      const output = own.outputs.findIndex(
        (digest, k) => toHex(digest) !== toHex(other.outputs[k] ?? digest),
      );
      if (output < 0) continue;
      count += 1;
      const places = Object.entries(file.jobs[job] ?? {});
      const files = new Map(places.map(([file, place]) => [file, at(place)]));
      const manifest = files.get("job.json") ?? fail("no job");
      files.delete("job.json");
      const terms = readTerms({ manifest, programs: files }, TABLE);
      const { program } = terms.step(0);
      const [a, b] = [rootsOf(messages, 0), rootsOf(messages, 1)];
      const found = new Found();
      const operands = agreedOperands(program.node(0), own.inputs);
      const context = {
        terms,
        step: 0,
        program,
        node: 0,
        operands,
        found,
        before: [a[0], b[0]] as const,
        after: [a[1], b[1]] as const,
      };
      const answers = new Map(messages.map((one) => [`${one.party}${toHex(one.query)}`, one.body]));
      const digests = [own.outputs[output], other.outputs[output]] as const;
      const game = played(
        judgeOutput(context, output, [digests[0] ?? fail(name), digests[1] ?? fail(name)]),
        (party, query) =>
          answers.get(`${party}${toHex(bytesOf(query))}`) ?? fail(`${name}: ${query.kind}`),
      );
      const convicted = game.convictions.map((one) => ({
        party: one.party === 0 ? "A" : "B",
        clause: one.clause,
        case: one.case ?? "",
      }));
      const [is, want] = [Object.assign(found, { convicted }), due].map((one) =>
        [
          short(one.convicted),
          one.element,
          one.quantity,
          one.claimed.join(" / "),
          one.value,
          JSON.stringify(one.choices),
          one.terms,
        ].join(" | "),
      );
      if (is !== want) wrong.push(`${name}: ${is ?? ""}, not ${want ?? ""}`);
    }
    expect(wrong.slice(0, 12)).toEqual([]);
    expect(count).toBeGreaterThan(0);
  });
});

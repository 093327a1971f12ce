/** How much evidence about a job there can be (PROTOCOL 8.5): true answers to all rounds of 7.2. */
import type { Terms } from "../job/terms.ts";
import { LIMITS } from "../limits.ts";
import { inclusionLength, multiProofMost } from "../merkle.ts";
import { checkpointCount } from "../runs.ts";
import { LOG_CHAIN } from "../state.ts";
import { MESSAGE_HEAD_BYTES, type Bounds } from "./evidence.ts";
import { extremesOf, type Extremes } from "./extremes.ts";
import { writeQuery } from "./messages.ts";
import type { Query } from "./queries.ts";
import {
  HASH,
  hashesLength,
  hashListLength,
  openingHeadLength,
  signedLength,
  valuesLength,
  WORD,
} from "./sizes.ts";

/** Bytes beside the true answers: the last two, of any length, and all that is no answer. */
export const FRAME_BYTES =
  2 * LIMITS.commitmentBytes + 2 * LIMITS.answerBytes + LIMITS.forfeitBytes + 256;
/** The last two, or the two of an equivocation. */
const FREE_MESSAGES = 2;

/** Answers of one kind: how many at most, the longest query, and the longest body. */
interface Answers {
  readonly count: number;
  readonly query: Query;
  readonly body: number;
}

/** What the lengths of a job's answers depend on. */
interface Sizes extends Extremes {
  readonly checkpoints: number;
  readonly interval: number;
  readonly slotProof: number;
  readonly valuesLength: number;
}

/** 2.4. */
const PARTS = 32;
const BOTH = 2;
/** Rounds of values, and openings with their leaves together (8.5). */
const VALUE_ROUNDS = 64;
const OPENINGS = 16;
const OPENED_LEAVES = 1536;

/** ⌈log_base count⌉. */
function levels(count: number, base: number): number {
  let found = 0;
  for (let reach = 1; reach < count; reach *= base) found++;
  return found;
}

const zeros = (count: number): number[] => Array.from({ length: count }, () => 0);

/** The longest inclusion proof in a tree of so many leaves: no leaf lies deeper than the first. */
const proofLength = (leaves: number): number => hashListLength(inclusionLength(0, leaves));

function checkpointsAnswers(count: number, indices: number, { checkpoints }: Sizes): Answers {
  const asked = Math.min(indices, checkpoints);
  const body = hashesLength(asked) + hashListLength(multiProofMost(asked, checkpoints));
  return { count, query: { kind: "checkpoints", indices: zeros(asked) }, body };
}

const slotAnswers = (count: number, name: string, { slotProof }: Sizes): Answers => ({
  count,
  query: { kind: "slot", step: 0, name },
  body: HASH + slotProof,
});

/** Sections 3 and 4: the ends, the search, and what decides about different ends (4.7). */
function answersOfSearch(sizes: Sizes, arity: number): Answers[] {
  const { checkpoints, interval, slotName, slotProof } = sizes;
  const steps = Math.min(arity - 1, interval);
  const rounds = levels(interval, arity);
  return [
    // The ends (3.3), and the last common checkpoint (4.2).
    checkpointsAnswers(2 * BOTH, 2, sizes),
    checkpointsAnswers(2 * BOTH * levels(checkpoints, arity), arity - 1, sizes),
    {
      count: BOTH * rounds + 1,
      query: { kind: "states", steps: zeros(steps) },
      body: hashesLength(steps),
    },
    { count: 1, query: { kind: "loss", step: 0 }, body: HASH + 4 + slotProof },
    slotAnswers(1, slotName, sizes),
  ];
}

/** Sections 5 and 6, without logs. */
function answersOfStep(sizes: Sizes): Answers[] {
  const { leafLength, leaves, nodes, recordLength, slotName } = sizes;
  const place = { step: 0, node: 0, side: 0, operand: 0 } as const;
  const range = { first: 0, count: 1 };
  const opened = Math.min(OPENED_LEAVES / OPENINGS, leaves);
  return [
    { count: BOTH, query: { kind: "nodes", step: 0 }, body: WORD + HASH },
    {
      count: BOTH * levels(nodes, PARTS),
      query: { kind: "node hashes", step: 0, range },
      body: hashesLength(PARTS),
    },
    // COMMIT (5.3), the node (5.5), and one that an operand comes from (5.6.2).
    {
      count: 2 * BOTH + 1,
      query: { kind: "node", step: 0, node: 0 },
      body: recordLength + proofLength(nodes),
    },
    slotAnswers(1, slotName, sizes),
    {
      count: 1,
      query: { kind: "record part", data: 0, record: 0, part: 0 },
      body: sizes.partLength,
    },
    {
      count: BOTH * levels(leaves, PARTS),
      query: { kind: "tensor hashes", ...place, range },
      body: hashesLength(PARTS),
    },
    { count: BOTH, query: { kind: "leaf", ...place, leaf: 0 }, body: WORD + leafLength },
    {
      count: BOTH * VALUE_ROUNDS,
      query: {
        kind: "values",
        ...{ step: 0, node: 0, output: 0, element: 0 },
        path: zeros(VALUE_ROUNDS),
        view: { view: "needs" },
      },
      body: sizes.valuesLength,
    },
    // A proof of more leaves has fewer hashes for each: equal openings have the most together.
    {
      count: OPENINGS,
      query: { kind: "opening", step: 0, node: 0, operand: 0, leaves: zeros(opened) },
      body:
        openingHeadLength(LIMITS.tensorRank) +
        opened * (WORD + leafLength) +
        hashListLength(multiProofMost(opened, leaves)),
    },
  ];
}

/** What a step has more of under a contract with logs (6.10, 6.13). */
function answersOfLogs(sizes: Sizes): Answers[] {
  const { blocks, leafLength, leaves, nodes, recordLength, sections, slotProof } = sizes;
  const place = { step: 0, node: 0, side: 1, operand: 0 } as const;
  const range = { first: 0, count: 1 };
  return [
    {
      count: BOTH,
      query: { kind: "log", step: 0 },
      body: HASH + 2 * slotProof + hashListLength(sections),
    },
    {
      count: BOTH * levels(blocks, PARTS),
      query: { kind: "log hashes", step: 0, section: 0, range },
      body: WORD + hashesLength(PARTS),
    },
    {
      count: BOTH,
      query: { kind: "log block", step: 0, section: 0, block: 0 },
      body: WORD + LIMITS.logBlockBytes + proofLength(blocks),
    },
    {
      count: 1,
      query: { kind: "node", step: 0, node: 0 },
      body: recordLength + proofLength(nodes),
    },
    {
      count: levels(leaves, PARTS),
      query: { kind: "tensor hashes", ...place, range },
      body: hashesLength(PARTS),
    },
    { count: 1, query: { kind: "leaf", ...place, leaf: 0 }, body: WORD + leafLength },
  ];
}

/** 6.14: half of its rounds state roots, the other half prove a slot. */
function answersBeyond(sizes: Sizes): Answers[] {
  const halvings = levels(sizes.checkpoints, 2) + levels(sizes.interval, 2) + 2;
  return [
    checkpointsAnswers(BOTH * halvings, 1, sizes),
    slotAnswers(BOTH * halvings, LOG_CHAIN, sizes),
  ];
}

function answersOf(terms: Terms, arity: number): Answers[] {
  const sizes: Sizes = {
    ...extremesOf(terms),
    checkpoints: checkpointCount(terms.steps, terms.checkpointInterval),
    interval: terms.checkpointInterval,
    slotProof: proofLength(terms.slots.size),
    valuesLength: valuesLength(terms),
  };
  const search = answersOfSearch(sizes, arity);
  const step = answersOfStep(sizes);
  if (terms.logs === null) return [...search, ...step];
  const logged = [...step, ...answersOfLogs(sizes)];
  return [...search, ...logged, ...logged, ...answersBeyond(sizes)];
}

/** The most messages and bytes of evidence about a job, for an arity. */
export function boundsOf(terms: Terms, arity: number): Bounds {
  let [messages, bytes] = [FREE_MESSAGES, FRAME_BYTES];
  for (const { body, count, query } of answersOf(terms, arity)) {
    messages += count;
    bytes += count * (MESSAGE_HEAD_BYTES + signedLength(writeQuery(query).length, body));
  }
  return { messages, bytes: Math.min(bytes, LIMITS.evidenceBytes) };
}

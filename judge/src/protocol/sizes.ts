/** The length of a true answer, by its query (PROTOCOL 2.6.1), and the bounds of evidence (8.5). */
import type { Terms } from "../job/terms.ts";
import { LIMITS } from "../limits.ts";
import { blockCount } from "../logs.ts";
import { inclusionLength, multiProofLength } from "../merkle.ts";
import { toUtf8 } from "../bytes.ts";
import { checkpointCount } from "../runs.ts";
import { tag } from "../sha256.ts";
import { LOG_CHAIN, LOSS_CHAIN } from "../state.ts";
import { headerOf, LEAF_BYTES, leafCount, leafLength, type TensorType } from "../tensors.ts";
import { MESSAGE_HEAD_BYTES } from "./evidence.ts";
import { writeQuery } from "./messages.ts";
import { partsOf } from "./parts.ts";
import { WithoutVerdict, type Asked } from "./play.ts";
import type { Query, Side } from "./queries.ts";
import { formOf } from "./records.ts";
import { SIGNATURE_BYTES } from "./signed.ts";

const HASH = 32;
/** A u64: also the length of a blob and of a list. */
const WORD = 8;
/** Values of one answer of kind 10, and bytes of the longest (PROTOCOL 6.4, OPENING 1.3). */
const VALUES_BYTES = 256 * 80;
/** The last messages, of any length (8.5). */
const FREE_BYTES = 2 * LIMITS.commitmentBytes + 2 * LIMITS.answerBytes + LIMITS.forfeitBytes + 256;

const hashes = (count: number): number => HASH * count;
const list = (count: number): number => WORD + hashes(count);

function tensorOf(
  terms: Terms,
  step: number,
  node: number,
  side: Side,
  operand: number,
): TensorType {
  const { program } = terms.step(step);
  const types =
    side === 0 ? formOf(program, terms.slots, node).operandTypes : program.node(node).outputs;
  const type = types[operand];
  if (!type) throw new Error(`node ${node} has no tensor ${operand}`);
  return type;
}

/** An inclusion proof of a slot. */
function slotProof({ slots }: Terms, name: string): number {
  return list(inclusionLength([...slots.keys()].indexOf(name), slots.size));
}

function nodeBody(terms: Terms, step: number, node: number): number {
  const { program } = terms.step(step);
  const { operator, attributes, operands, outputs } = formOf(program, terms.slots, node);
  const inputs = operands.filter((operand) => operand !== null).length;
  const head = 4 + toUtf8(operator).length + WORD + attributes.length;
  const proof = list(inclusionLength(node, program.nodeCount));
  return head + list(inputs) + list(outputs) + proof;
}

function openingBody(type: TensorType, leaves: readonly number[]): number {
  const bytes = leaves.reduce((sum, leaf) => sum + WORD + leafLength(type, leaf), 0);
  const head = tag("tensor-opening/1").length + headerOf(type).length + WORD;
  return WORD + head + bytes + list(multiProofLength(leaves, leafCount(type)));
}

function blocksOf(terms: Terms, step: number, section: number): number {
  const own = terms.step(step).program.sections[section];
  if (own === undefined) throw new Error(`no section ${section}`);
  return blockCount(own);
}

/** A part of a record, its bytes and both proofs. */
function partBody(terms: Terms, step: number, record: number, part: number): number {
  const { data } = terms.step(step);
  if (data === null) throw new Error("a record of no data");
  const parts = data.schema.parts();
  const inner = terms.format === 1 ? 0 : list(inclusionLength(part, parts.length));
  return WORD + (parts[part]?.length ?? 0) + inner + list(inclusionLength(record, data.records));
}

/**
 * The bytes of a true body. Of values (kind 10) and of a log's block (kind 15) it is the most that
 * they can have. `step` is the disputed one: a query of a record does not name it.
 */
function bodyLength(terms: Terms, query: Query, checkpoints: number, step: number): number {
  switch (query.kind) {
    case "checkpoints":
      return hashes(query.indices.length) + list(multiProofLength(query.indices, checkpoints));
    case "states":
      return hashes(query.steps.length);
    case "loss":
      return HASH + 4 + slotProof(terms, LOSS_CHAIN);
    case "nodes":
      return WORD + HASH;
    case "node hashes":
    case "tensor hashes":
      return hashes(partsOf(query.range).length);
    case "node":
      return nodeBody(terms, query.step, query.node);
    case "slot":
      return HASH + slotProof(terms, query.name);
    case "leaf": {
      const { side, operand, leaf } = query;
      return WORD + leafLength(tensorOf(terms, query.step, query.node, side, operand), leaf);
    }
    case "values":
      return VALUES_BYTES;
    case "opening": {
      const type = tensorOf(terms, query.step, query.node, 0, query.operand);
      return openingBody(type, query.leaves);
    }
    case "record":
      return partBody(terms, step, query.index, 0);
    case "record part":
      return partBody(terms, step, query.record, query.part);
    case "log": {
      const { sections } = terms.step(query.step).program;
      return HASH + 2 * slotProof(terms, LOG_CHAIN) + list(sections.length);
    }
    case "log hashes":
      return WORD + hashes(partsOf(query.range).length);
    case "log block": {
      const blocks = blocksOf(terms, query.step, query.section);
      return WORD + LIMITS.logBlockBytes + list(inclusionLength(query.block, blocks));
    }
  }
}

/** The bytes of a true signed answer (2.3, 2.5). */
function answerLength(terms: Terms, query: Query, checkpoints: number, step: number): number {
  const head = tag("answer/1").length + 2 * HASH + WORD + writeQuery(query).length + 1;
  return WORD + head + bodyLength(terms, query, checkpoints, step) + SIGNATURE_BYTES;
}

/** Rounds of values and openings, with the limits of 8.5 for 4·d and o of 7.2. */
const ELEMENT_ROUNDS = 64 + 16;
/** Rounds of 7.2 that depend on nothing, without logs and with them. */
const FIXED_ROUNDS = 10;
const LOG_ROUNDS = 6;
const PARTS = 32;

/** ⌈log_base count⌉. */
function levels(count: number, base: number): number {
  let found = 0;
  for (let reach = 1; reach < count; reach *= base) found++;
  return found;
}

/**
 * The messages of a game of the job at most: two of each round of 7.2, and one that equivocates.
 * The sizes of nodes, leaves and blocks are the limits of COMMITMENTS 11.1, which no program passes.
 */
export function mostMessages(terms: Terms, arity: number): number {
  const { steps, checkpointInterval, logs } = terms;
  const checkpoints = checkpointCount(steps, checkpointInterval);
  const search = 2 * levels(checkpoints, arity) + levels(checkpointInterval, arity);
  const leaves = levels(LIMITS.tensorBytes / LEAF_BYTES, PARTS);
  const ofStep = FIXED_ROUNDS + levels(LIMITS.nodes, PARTS) + leaves + ELEMENT_ROUNDS;
  const beyond = 2 * (levels(checkpoints, 2) + levels(checkpointInterval, 2) + 2);
  const ofLogs = logs === null ? 0 : ofStep + 2 * (LOG_ROUNDS + 2 * leaves) + beyond;
  return 2 * (search + ofStep + ofLogs) + 1;
}

/** The room that a game's true answers have in the evidence (2.6.1, 8.5). */
export class Room {
  #left: number = LIMITS.evidenceBytes - FREE_BYTES;

  constructor(
    readonly terms: Terms,
    readonly checkpoints: readonly [number, number],
  ) {}

  /** Ends the game without a verdict where a true answer is too long, or there is no room left. */
  ask(asked: readonly Asked[], step: number): void {
    for (const { party, query } of asked) {
      const length = answerLength(this.terms, query, this.checkpoints[party], step);
      if (length > LIMITS.answerBytes || writeQuery(query).length > LIMITS.queryBytes) {
        throw new WithoutVerdict("a true answer would be over its limit");
      }
      this.#left -= MESSAGE_HEAD_BYTES + length;
    }
    if (this.#left < 0) throw new WithoutVerdict("the answers would have no room in the evidence");
  }
}

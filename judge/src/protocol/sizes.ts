/** The length of a true answer, by its query (PROTOCOL 2.6.1). */
import type { Terms } from "../job/terms.ts";
import { LIMITS } from "../limits.ts";
import { blockCount } from "../logs.ts";
import { inclusionLength, multiProofLength } from "../merkle.ts";
import { toUtf8 } from "../bytes.ts";
import { tag } from "../sha256.ts";
import { LOG_CHAIN, LOSS_CHAIN } from "../state.ts";
import { leafCount, leafLength, type TensorType } from "../tensors.ts";
import { writeQuery } from "./messages.ts";
import { partsOf } from "./parts.ts";
import type { Query, Side } from "./queries.ts";
import { formOf, type NodeForm } from "./records.ts";
import { SIGNATURE_BYTES } from "./signed.ts";

export const HASH = 32;
/** A u64: also the length of a blob and of a list. */
export const WORD = 8;
/** Values of one answer of kind 10 (PROTOCOL 6.4). */
const VALUES = 256;
/** Bytes of a value: an exact sum's record, which no quantity of `ordered/1` has (OPENING 1.3, 8). */
const SUM_BYTES = 80;

/** The most bytes of an answer of kind 10. */
export const valuesLength = ({ contract }: Terms): number =>
  VALUES * (contract.family === "ordered" ? WORD : SUM_BYTES);

export const hashesLength = (count: number): number => HASH * count;
export const hashListLength = (count: number): number => WORD + hashesLength(count);

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
  return hashListLength(inclusionLength([...slots.keys()].indexOf(name), slots.size));
}

/** A record of a node, without the proof (kind 6). */
export function recordLength({ operator, attributes, operands, outputs }: NodeForm): number {
  const inputs = operands.filter((operand) => operand !== null).length;
  const head = 4 + toUtf8(operator).length + WORD + attributes.length;
  return head + hashListLength(inputs) + hashListLength(outputs);
}

function nodeBody(terms: Terms, step: number, node: number): number {
  const { program } = terms.step(step);
  const proof = hashListLength(inclusionLength(node, program.nodeCount));
  return recordLength(formOf(program, terms.slots, node)) + proof;
}

/** An opening of a tensor of so many axes, before its leaves (COMMITMENTS 3.6). */
export const openingHeadLength = (rank: number): number =>
  WORD + tag("tensor-opening/1").length + 2 + WORD * rank + WORD;

function openingBody(type: TensorType, leaves: readonly number[]): number {
  const bytes = leaves.reduce((sum, leaf) => sum + WORD + leafLength(type, leaf), 0);
  return (
    openingHeadLength(type.shape.length) +
    bytes +
    hashListLength(multiProofLength(leaves, leafCount(type)))
  );
}

function blocksOf(terms: Terms, step: number, section: number): number {
  const own = terms.step(step).program.sections[section];
  if (own === undefined) throw new Error(`no section ${section}`);
  return blockCount(own);
}

/** A part of a record, or the record of format 1: its bytes, and how long its proofs are. */
export function provedPart({ format }: Terms, bytes: number, inner: number, path: number): number {
  return WORD + bytes + (format === 1 ? 0 : hashListLength(inner)) + hashListLength(path);
}

function partBody(terms: Terms, step: number, record: number, part: number): number {
  const { data } = terms.step(step);
  if (data === null) throw new Error("a record of no data");
  const parts = data.schema.parts();
  const inner = inclusionLength(part, parts.length);
  return provedPart(terms, parts[part]?.length ?? 0, inner, inclusionLength(record, data.records));
}

/**
 * The bytes of a true body. Of values (kind 10) and of a log's block (kind 15) it is the most that
 * they can have. `step` is the disputed one: a query of a record does not name it.
 */
function bodyLength(terms: Terms, query: Query, checkpoints: number, step: number): number {
  switch (query.kind) {
    case "checkpoints":
      return (
        hashesLength(query.indices.length) +
        hashListLength(multiProofLength(query.indices, checkpoints))
      );
    case "states":
      return hashesLength(query.steps.length);
    case "loss":
      return HASH + 4 + slotProof(terms, LOSS_CHAIN);
    case "nodes":
      return WORD + HASH;
    case "node hashes":
    case "tensor hashes":
      return hashesLength(partsOf(query.range).length);
    case "node":
      return nodeBody(terms, query.step, query.node);
    case "slot":
      return HASH + slotProof(terms, query.name);
    case "leaf": {
      const { side, operand, leaf } = query;
      return WORD + leafLength(tensorOf(terms, query.step, query.node, side, operand), leaf);
    }
    case "values":
      return valuesLength(terms);
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
      return HASH + 2 * slotProof(terms, LOG_CHAIN) + hashListLength(sections.length);
    }
    case "log hashes":
      return WORD + hashesLength(partsOf(query.range).length);
    case "log block": {
      const blocks = blocksOf(terms, query.step, query.section);
      return WORD + LIMITS.logBlockBytes + hashListLength(inclusionLength(query.block, blocks));
    }
  }
}

/** The bytes of a signed answer with a query and a body of such lengths (2.3, 2.5). */
export function signedLength(query: number, body: number): number {
  const head = tag("answer/1").length + 2 * HASH + WORD + query + 1;
  return WORD + head + body + SIGNATURE_BYTES;
}

/** The bytes of a true signed answer. */
export function answerLength(
  terms: Terms,
  query: Query,
  checkpoints: number,
  step: number,
): number {
  return signedLength(writeQuery(query).length, bodyLength(terms, query, checkpoints, step));
}

/** Queries and signed answers as bytes (PROTOCOL 2.1, 2.3, 2.5, 2.6). */
import { equalBytes } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { Reader } from "../reader.ts";
import type { PublicKey } from "../signatures.ts";
import { Writer } from "../writer.ts";
import type { Party, Query, Range, View } from "./queries.ts";
import { readSigned, requireSigned } from "./signed.ts";

export const ANSWER_TYPE = "application/vnd.tallystick.answer.v1";

const KINDS = [
  "checkpoints",
  "states",
  "loss",
  "nodes",
  "node hashes",
  "node",
  "slot",
  "tensor hashes",
  "leaf",
  "values",
  "opening",
  "record",
  "log",
  "log hashes",
  "log block",
  "record part",
] as const satisfies readonly Query["kind"][];

const VIEWS = ["needs", "blocks", "states", "witness", "terms"] as const;

/** The three numbers of a view, 0 where none is named (6.4). */
function viewNumbers(view: View): readonly [number, number, number] {
  switch (view.view) {
    case "needs":
    case "witness":
      return [0, 0, 0];
    case "blocks":
      return [view.level, view.index, 0];
    case "states":
      return [view.first, view.last, view.stride];
    case "terms":
      return [view.first, view.last, 0];
  }
}

/** The bytes of a query (2.1). */
export function writeQuery(query: Query): Uint8Array {
  const out = Writer.tagged("query/1").u8(KINDS.indexOf(query.kind) + 1);
  const numbers = (...values: readonly number[]): void => {
    for (const value of values) out.u64(value);
  };
  const list = (values: readonly number[]): void =>
    void out.list(values, (value) => out.u64(value));
  const range = ({ first, count }: Range): void => {
    numbers(first, count);
  };
  switch (query.kind) {
    case "checkpoints":
      list(query.indices);
      break;
    case "states":
      list(query.steps);
      break;
    case "loss":
    case "nodes":
    case "log":
      numbers(query.step);
      break;
    case "node hashes":
      numbers(query.step);
      range(query.range);
      break;
    case "node":
      numbers(query.step, query.node);
      break;
    case "slot":
      numbers(query.step);
      out.text(query.name);
      break;
    case "tensor hashes":
      numbers(query.step, query.node);
      out.u8(query.side);
      numbers(query.operand);
      range(query.range);
      break;
    case "leaf":
      numbers(query.step, query.node);
      out.u8(query.side);
      numbers(query.operand, query.leaf);
      break;
    case "values":
      numbers(query.step, query.node, query.output, query.element);
      list(query.path);
      out.u8(VIEWS.indexOf(query.view.view) + 1);
      numbers(...viewNumbers(query.view));
      break;
    case "opening":
      numbers(query.step, query.node, query.operand);
      list(query.leaves);
      break;
    case "record":
      numbers(query.index);
      break;
    case "log hashes":
      numbers(query.step, query.section);
      range(query.range);
      break;
    case "log block":
      numbers(query.step, query.section, query.block);
      break;
    case "record part":
      numbers(query.data, query.record, query.part);
      break;
  }
  return out.bytes();
}

/** A party, as messages and entries name it (8.1, 12.2). */
export function readParty(reader: Reader): Party {
  const party = reader.u8();
  if (party !== 0 && party !== 1) throw refuse(`there is no party ${party}`);
  return party;
}

/** Who answers, and about what (2.3). */
export interface Answerer {
  readonly jobDigest: Uint8Array;
  readonly runRoot: Uint8Array;
  readonly signer: PublicKey;
}

/** What an answer says. */
export interface ReadAnswer {
  readonly status: number;
  readonly body: Uint8Array;
}

/** An answer that a party has signed, taken apart. */
export interface OpenedAnswer extends ReadAnswer {
  /** Without the signature: what 2.9 compares. */
  readonly answer: Uint8Array;
  readonly query: Uint8Array;
}

/** Opens a signed answer of a party about its run; other bytes are none (2.6). */
export function openSignedAnswer(bytes: Uint8Array, by: Answerer): OpenedAnswer {
  const signed = readSigned(bytes, LIMITS.answerBytes);
  const answer = signed.data;
  const reader = new Reader(answer);
  reader.tag("answer/1");
  if (!equalBytes(reader.hash(), by.jobDigest)) throw refuse("an answer about another job");
  if (!equalBytes(reader.hash(), by.runRoot)) throw refuse("an answer about another run");
  const query = reader.blob(LIMITS.queryBytes, "a query");
  const status = reader.u8();
  requireSigned(signed, ANSWER_TYPE, by.signer);
  return { answer, query, status, body: reader.take(reader.left) };
}

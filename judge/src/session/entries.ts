/** The entries of a referee's log (PROTOCOL 12.1, 12.2). */

import { refuse } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { readParty } from "../protocol/messages.ts";
import type { Party } from "../protocol/queries.ts";
import { Reader } from "../reader.ts";
import { sha256 } from "../sha256.ts";
import { Writer } from "../writer.ts";
import { readRules, readTime, type Rules, writeRules } from "./rules.ts";

/** What an entry says. `message` is a party's signed message. */
export type Said =
  | { readonly kind: "session"; readonly rules: Rules }
  | { readonly kind: "seal"; readonly message: Uint8Array }
  | { readonly kind: "sealed" }
  | { readonly kind: "opening"; readonly message: Uint8Array }
  | { readonly kind: "opened" }
  | {
      readonly kind: "asked";
      readonly game: number;
      readonly party: Party;
      readonly query: Uint8Array;
    }
  | {
      readonly kind: "answered";
      readonly game: number;
      readonly party: Party;
      readonly message: Uint8Array;
    }
  | {
      readonly kind: "forfeited";
      readonly game: number;
      readonly party: Party;
      readonly envelope: Uint8Array;
    }
  | { readonly kind: "resumed" }
  | {
      readonly kind: "game";
      readonly game: number;
      readonly keys: readonly [Uint8Array, Uint8Array];
    }
  | {
      readonly kind: "verdict";
      readonly game: number;
      readonly outcome: number;
      /** Bits: 1 for party 0, 2 for party 1. */
      readonly convicted: number;
    }
  | { readonly kind: "result"; readonly outcome: number; readonly accepted: Uint8Array };

export interface Head {
  readonly index: number;
  readonly previous: Uint8Array;
}

export interface Entry extends Head {
  readonly time: bigint;
  readonly said: Said;
}

/** The numbers of the kinds, from 1 on. */
const KINDS: readonly Said["kind"][] = [
  "session",
  "seal",
  "sealed",
  "opening",
  "opened",
  "asked",
  "answered",
  "forfeited",
  "resumed",
  "game",
  "verdict",
  "result",
];

/** A game's number: a session has fewer games than parties (10.7). */
export function readGame(reader: Reader): number {
  return reader.count(LIMITS.parties - 1, "a game's number");
}

function readSaid(reader: Reader): Said {
  const number = reader.u8();
  const kind = KINDS[number - 1];
  switch (kind) {
    case "session":
      return { kind, rules: readRules(reader) };
    case "seal":
      return { kind, message: reader.blob(LIMITS.sealBytes, "a seal's bytes") };
    case "opening":
      return { kind, message: reader.blob(LIMITS.sealedBytes, "an opening's bytes") };
    case "asked": {
      const [game, party] = [readGame(reader), readParty(reader)];
      return { kind, game, party, query: reader.blob(LIMITS.queryBytes, "a query's bytes") };
    }
    case "answered": {
      const [game, party] = [readGame(reader), readParty(reader)];
      return { kind, game, party, message: reader.blob(LIMITS.answerBytes, "an answer's bytes") };
    }
    case "forfeited": {
      const [game, party] = [readGame(reader), readParty(reader)];
      return { kind, game, party, envelope: reader.blob(LIMITS.forfeitBytes, "a forfeit's bytes") };
    }
    case "game":
      return { kind, game: readGame(reader), keys: [reader.hash(), reader.hash()] };
    case "verdict":
      return { kind, game: readGame(reader), outcome: reader.u8(), convicted: reader.u8() };
    case "result":
      return { kind, outcome: reader.u8(), accepted: reader.hash() };
    case "sealed":
    case "opened":
    case "resumed":
      return { kind };
    default:
      throw refuse(`an entry of kind ${number}`);
  }
}

/** The kind and the fields of an entry. */
export function writeSaid(said: Said, writer: Writer = new Writer()): Writer {
  writer.u8(KINDS.indexOf(said.kind) + 1);
  switch (said.kind) {
    case "session":
      writeRules(said.rules, writer);
      break;
    case "seal":
    case "opening":
      writer.blob(said.message);
      break;
    case "asked":
      writer.u64(said.game).u8(said.party).blob(said.query);
      break;
    case "answered":
      writer.u64(said.game).u8(said.party).blob(said.message);
      break;
    case "forfeited":
      writer.u64(said.game).u8(said.party).blob(said.envelope);
      break;
    case "game":
      writer.u64(said.game).hash(said.keys[0]).hash(said.keys[1]);
      break;
    case "verdict":
      writer.u64(said.game).u8(said.outcome).u8(said.convicted);
      break;
    case "result":
      writer.u8(said.outcome).hash(said.accepted);
      break;
    case "sealed":
    case "opened":
    case "resumed":
      break;
  }
  return writer;
}

function readHeadOf(reader: Reader): Head {
  reader.tag("log-entry/1");
  return {
    index: reader.count(LIMITS.logEntries - 1, "an entry's index"),
    previous: reader.hash(),
  };
}

/** An entry's place in a log, whatever it says (12.5.1). */
export function readHead(data: Uint8Array): Head {
  return readHeadOf(new Reader(data));
}

export function readEntry(data: Uint8Array): Entry {
  const reader = new Reader(data);
  const head = readHeadOf(reader);
  const entry = { ...head, time: readTime(reader), said: readSaid(reader) };
  reader.end();
  return entry;
}

export function writeEntry({ index, previous, time, said }: Entry): Uint8Array {
  const head = Writer.tagged("log-entry/1").u64(index).hash(previous).u64(time);
  return writeSaid(said, head).bytes();
}

/** The digest of an entry: H of its bytes without the signature (12.1). */
export function entryDigest(data: Uint8Array): Uint8Array {
  return sha256(data);
}

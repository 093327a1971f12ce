/** Turns: what a referee sends to a party (PROTOCOL 13.2). */

import { refuse } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { readParty } from "../protocol/messages.ts";
import type { Party } from "../protocol/queries.ts";
import { Reader } from "../reader.ts";
import { Writer } from "../writer.ts";
import { readGame } from "./entries.ts";

/** What a turn says. Entries and answers are in their signed form. */
export type TurnSaid =
  | { readonly kind: "seal"; readonly entry: Uint8Array }
  | { readonly kind: "open"; readonly entries: readonly Uint8Array[] }
  | {
      readonly kind: "play";
      readonly game: number;
      readonly party: Party;
      /** The parties' run commitment envelopes. */
      readonly commitments: readonly [Uint8Array, Uint8Array];
      /** The number of the first of the messages. */
      readonly first: number;
      readonly messages: readonly { readonly party: Party; readonly answer: Uint8Array }[];
      /** No bytes: nothing is asked. */
      readonly query: Uint8Array;
    }
  | { readonly kind: "end"; readonly entry: Uint8Array };

export interface Turn {
  readonly session: Uint8Array;
  readonly said: TurnSaid;
}

/** The numbers of the kinds, from 1 on. */
const KINDS: readonly TurnSaid["kind"][] = ["seal", "open", "play", "end"];
/** The least bytes of a blob, and of a party with a blob. */
const [BLOB, PARTY_AND_BLOB] = [8, 9];

const readSignedEntry = (reader: Reader): Uint8Array =>
  reader.blob(LIMITS.entryBytes, "an entry's bytes");

function readPlay(reader: Reader): TurnSaid {
  const commitment = (): Uint8Array => reader.blob(LIMITS.commitmentBytes, "a commitment's bytes");
  return {
    kind: "play",
    game: readGame(reader),
    party: readParty(reader),
    commitments: [commitment(), commitment()],
    first: reader.count(Number.MAX_SAFE_INTEGER, "the number of a message"),
    messages: reader.list(LIMITS.turnMessages, PARTY_AND_BLOB, "messages", () => ({
      party: readParty(reader),
      answer: reader.blob(LIMITS.answerBytes, "an answer's bytes"),
    })),
    query: reader.blob(LIMITS.queryBytes, "a query's bytes"),
  };
}

function readTurnSaid(reader: Reader): TurnSaid {
  const number = reader.u8();
  const kind = KINDS[number - 1];
  switch (kind) {
    case "seal":
    case "end":
      return { kind, entry: readSignedEntry(reader) };
    case "open": {
      const entry = (): Uint8Array => readSignedEntry(reader);
      return { kind, entries: reader.list(LIMITS.turnEntries, BLOB, "entries", entry) };
    }
    case "play":
      return readPlay(reader);
    default:
      throw refuse(`a turn of kind ${number}`);
  }
}

export function readTurn(data: Uint8Array): Turn {
  const reader = new Reader(data);
  reader.tag("turn/1");
  const turn = { session: reader.hash(), said: readTurnSaid(reader) };
  reader.end();
  return turn;
}

export function writeTurn({ session, said }: Turn): Uint8Array {
  const writer = Writer.tagged("turn/1")
    .hash(session)
    .u8(KINDS.indexOf(said.kind) + 1);
  switch (said.kind) {
    case "seal":
    case "end":
      writer.blob(said.entry);
      break;
    case "open":
      writer.list(said.entries, (entry) => writer.blob(entry));
      break;
    case "play":
      writer.u64(said.game).u8(said.party);
      writer.blob(said.commitments[0]).blob(said.commitments[1]).u64(said.first);
      writer.list(said.messages, ({ party, answer }) => writer.u8(party).blob(answer));
      writer.blob(said.query);
      break;
  }
  return writer.bytes();
}

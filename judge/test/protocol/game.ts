/** Plays a game of a test: its answers come from a function. */
import { Convicted, type Conviction, type Play } from "../../src/protocol/play.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import { fail } from "../operators/calls.ts";

export interface Played<T> {
  readonly result?: T;
  readonly convictions: readonly Conviction[];
  /** The kinds of the queries of each round. */
  readonly rounds: readonly string[];
}

const MAX_ROUNDS = 200;

export function played<T>(
  game: Play<T>,
  answer: (party: Party, query: Query) => Uint8Array,
): Played<T> {
  const rounds: string[] = [];
  try {
    let step = game.next();
    while (step.done !== true) {
      if (rounds.length > MAX_ROUNDS) return fail("the game does not end");
      rounds.push(step.value.map(({ party, query }) => `${party} ${query.kind}`).join(", "));
      step = game.next(step.value.map(({ party, query }) => ({ body: answer(party, query) })));
    }
    return { result: step.value, convictions: [], rounds };
  } catch (error) {
    if (error instanceof Convicted) return { convictions: error.convictions, rounds };
    throw error;
  }
}

/** Convictions in short: party, clause and case. */
export const inShort = ({ convictions }: Played<unknown>): string =>
  convictions
    .map(({ party, clause, case: ofCase }) => `${party} ${clause} ${ofCase ?? "-"}`)
    .join("; ");

/** Changes the bodies of one party's answers of one kind. */
export const lying =
  (
    answer: (party: Party, query: Query) => Uint8Array,
    liar: Party,
    kind: Query["kind"],
    lie: (body: Uint8Array) => Uint8Array,
  ) =>
  (party: Party, query: Query): Uint8Array => {
    const body = answer(party, query);
    return party === liar && query.kind === kind ? lie(Uint8Array.from(body)) : body;
  };

/** A body with the lowest bit of a byte turned over; −1 is the last byte. */
export const turned =
  (at: number) =>
  (body: Uint8Array): Uint8Array =>
    body.map((byte, k) => (k === (at < 0 ? body.length + at : at) ? byte ^ 1 : byte));

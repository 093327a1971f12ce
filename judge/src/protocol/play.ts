/**
 * A game as a generator. It yields the queries of a round, is sent their answers in the same order,
 * and ends with a verdict. Who asks, a judge with evidence or a referee with a log, is outside.
 */
import type { Party, Query } from "./queries.ts";

export interface Asked {
  readonly party: Party;
  readonly query: Query;
}

/** An answer's body, its signature, job, run and query already compared (PROTOCOL 2.6). */
export interface Answer {
  /** Status 1 convicts by 2.8 wherever it comes; the caller of a round has done so already. */
  readonly body: Uint8Array;
}

export type Play<Result> = Generator<readonly Asked[], Result, readonly Answer[]>;

export type Case = "0" | "1" | "2a" | "2b" | "2c" | "2d" | "3";

/** A conviction: the clause, and the case where 1.6 has one. */
export interface Conviction {
  readonly party: Party;
  readonly clause: string;
  readonly case: Case | null;
}

/** Ends a game: thrown where the text says that parties are convicted. */
export class Convicted extends Error {
  override name = "Convicted";

  constructor(readonly convictions: readonly Conviction[]) {
    super(convictions.map(({ party, clause }) => `party ${party}, clause ${clause}`).join("; "));
  }
}

/** Ends a game without a verdict (2.6.1). */
export class WithoutVerdict extends Error {
  override name = "WithoutVerdict";
}

/** Rounds of one query for both parties or for one, and what answers convict of (PROTOCOL 1.2). */
import { RefusedError } from "../errors.ts";
import { Reader } from "../reader.ts";
import type { ReadAnswer } from "./messages.ts";
import { Convicted, type Case, type Conviction, type Play } from "./play.ts";
import type { Party, Query } from "./queries.ts";

export type Both<T> = readonly [T, T];

export const PARTIES: Both<Party> = [0, 1];

/** The same of each party. */
export const forBoth = <T>(of: (party: Party) => T): Both<T> => [of(0), of(1)];

/** Ends the game where a party is wrong, or both are. */
export function convictWhere(wrong: Both<boolean>, clause: string, ofCase: Case | null): void {
  const convictions = PARTIES.filter((party) => wrong[party]).map((party): Conviction => ({
    party,
    clause,
    case: ofCase,
  }));
  if (convictions.length > 0) throw new Convicted(convictions);
}

/** Ends the game with a conviction of one party. */
export const convict = (party: Party, clause: string, ofCase: Case | null): Convicted =>
  new Convicted([{ party, clause, case: ofCase }]);

/** Ends the game with a conviction of both parties. */
export const convictBoth = (clause: string, ofCase: Case | null): Convicted =>
  new Convicted(PARTIES.map((party) => ({ party, clause, case: ofCase })));

/** The status of a party that is unable to answer (2.3). */
const UNABLE = 1;

/** What an answer of another status than 0 convicts of, wherever it comes. */
export function convictionOf(party: Party, { status, body }: ReadAnswer): Conviction | undefined {
  if (status === 0) return undefined;
  // Status 1 has an empty body; everything else does not follow 2.1 (2.3).
  const isUnable = status === UNABLE && body.length === 0;
  return { party, clause: isUnable ? "2.8" : "2.7", case: null };
}

/** Reads all of a body; undefined where it does not follow its layout. */
function bodyOf<T>(body: Uint8Array, read: (reader: Reader) => T): { value: T } | undefined {
  try {
    const reader = new Reader(body);
    const value = read(reader);
    reader.end();
    return { value };
  } catch (error) {
    if (error instanceof RefusedError) return undefined;
    throw error;
  }
}

/** Asks one party, and reads its body; one that does not follow 2.1 convicts (PROTOCOL 2.7). */
export function* askOne<T>(party: Party, query: Query, read: (reader: Reader) => T): Play<T> {
  const [answer] = yield [{ party, query }];
  const found = bodyOf(answer?.body ?? new Uint8Array(), read);
  if (found === undefined) throw convict(party, "2.7", null);
  return found.value;
}

/** Ends the game with what `wrong` finds of each party. */
export function convictEach(wrong: (party: Party) => Convicted | undefined): void {
  const convictions = PARTIES.flatMap((party) => wrong(party)?.convictions ?? []);
  if (convictions.length > 0) throw new Convicted(convictions);
}

/**
 * Asks the parties that have a query, in one round, and reads their bodies (PROTOCOL 2.7). Without
 * a query there is no round.
 */
export function* askEach<T>(
  queries: Both<Query | undefined>,
  read: (party: Party, reader: Reader) => T,
): Play<Both<T | undefined>> {
  const asked = PARTIES.flatMap((party) => {
    const query = queries[party];
    return query === undefined ? [] : [{ party, query }];
  });
  if (asked.length === 0) return [undefined, undefined];
  const answers = yield asked;
  const bodies = asked.map(({ party }, k) => ({
    party,
    found: bodyOf(answers[k]?.body ?? new Uint8Array(), (reader) => read(party, reader)),
  }));
  const of = (party: Party): { value: T } | undefined =>
    bodies.find((body) => body.party === party)?.found;
  convictWhere(
    forBoth((party) => queries[party] !== undefined && of(party) === undefined),
    "2.7",
    null,
  );
  return [of(0)?.value, of(1)?.value];
}

/** Asks both parties the same, and reads their bodies (PROTOCOL 2.7). */
export function* askBoth<T>(query: Query, read: (reader: Reader) => T): Play<Both<T>> {
  const answers = yield PARTIES.map((party) => ({ party, query }));
  const [a, b] = forBoth((party) => bodyOf(answers[party]?.body ?? new Uint8Array(), read));
  convictWhere([a === undefined, b === undefined], "2.7", null);
  if (a === undefined || b === undefined) throw new Error("a body that convicted no one");
  return [a.value, b.value];
}

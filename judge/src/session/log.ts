/** Reads a referee's log, and says of what it convicts the referee (PROTOCOL 12). */

import { equalBytes, toHex } from "../bytes.ts";
import { RefusedError, refuse } from "../errors.ts";
import type { Terms } from "../job/terms.ts";
import { LIMITS } from "../limits.ts";
import { readSigned, requireSigned } from "../protocol/signed.ts";
import type { PublicKey } from "../signatures.ts";
import { Deviation } from "./deviation.ts";
import { entryDigest, readEntry, readHead } from "./entries.ts";
import { Session, type State } from "./fold.ts";
import { gamesOf } from "./game.ts";
import { convictedBits } from "./match.ts";
import { requireJob } from "./rules.ts";
import type { Member } from "./sides.ts";
import { ENTRY_TYPE, isCutOff } from "./signed.ts";

const NO_ENTRY = new Uint8Array(32);

/** Why the reading of a log ended before its end. */
export type Wrong = "" | "convicted" | "damaged" | "refused";

/** What a log says, up to the entry that ended the reading, or up to its end. Keys and digests are
 * hexadecimal digits. */
export interface SessionOutcome {
  readonly state: "none" | State;
  /** The keys that opened and are not excluded, ascending. */
  readonly members: readonly string[];
  /** The sides after the opening (10.4). */
  readonly sides: readonly (readonly string[])[];
  /** Why each key that is out is out. */
  readonly removed: Readonly<Record<string, string>>;
  /** Of each game with a verdict: both keys, outcome, convicted (12.2). */
  readonly games: readonly (readonly [string, string, number, number])[];
  /** How many rounds of games began. */
  readonly rounds: number;
  /** Outcome and digest of the entry of kind 12. */
  readonly result: readonly [number, string] | null;
  readonly wrong: Wrong;
  /** The entry that ended the reading, or -1. */
  readonly index: number;
  /** The clause by which that entry convicts the referee, or nothing. */
  readonly clause: "" | "12.5";
}

/** A session that has begun, and what signs and links its next entry. */
interface Reading {
  readonly session: Session;
  readonly referee: PublicKey;
  previous: Uint8Array;
}

/** What reading gives; null where it refuses the bytes. */
function orNull<T>(read: () => T): T | null {
  try {
    return read();
  } catch (error) {
    if (error instanceof RefusedError) return null;
    throw error;
  }
}

/** The bytes of an entry that the referee has signed; null where it has not (12.3.1). */
function signedBy(referee: PublicKey, bytes: Uint8Array): Uint8Array | null {
  return orNull(() => {
    const signed = readSigned(bytes, LIMITS.entryBytes);
    requireSigned(signed, ENTRY_TYPE, referee);
    return signed.data;
  });
}

/** Begins the session of an entry 0; refuses one that begins none of this job (10.1.2). */
function begin(bytes: Uint8Array, terms: Terms): Reading {
  const { data } = readSigned(bytes, LIMITS.entryBytes);
  const { index, previous, time, said } = readEntry(data);
  if (said.kind !== "session" || index !== 0 || !equalBytes(previous, NO_ENTRY)) {
    throw refuse("an entry that begins no session");
  }
  const { rules } = said;
  if (signedBy(rules.referee, bytes) === null) throw refuse("a signature that does not verify");
  requireJob(rules, terms);
  const digest = entryDigest(data);
  const session = new Session(digest, time, rules, gamesOf(terms, rules));
  return { session, referee: rules.referee, previous: digest };
}

/** Takes the entry of this index, or says what is wrong with it. */
function take(reading: Reading, index: number, bytes: Uint8Array): Wrong {
  const data = signedBy(reading.referee, bytes);
  if (data === null) return "damaged";
  const head = orNull(() => readHead(data));
  // Bytes without a head are an entry of no session, so they convict wherever they stand (12.5.3).
  if (head === null) return "convicted";
  if (head.index !== index || !equalBytes(head.previous, reading.previous)) return "damaged";
  const entry = orNull(() => readEntry(data));
  if (entry === null) return "convicted";
  try {
    reading.session.take(entry);
  } catch (error) {
    if (error instanceof Deviation) return "convicted";
    throw error;
  }
  reading.previous = entryDigest(data);
  return "";
}

function keyOf({ commitment }: Member): string {
  return toHex(commitment.signer.raw);
}

function outcomeOf(session: Session | null, wrong: Wrong, index: number): SessionOutcome {
  const result = session?.result ?? null;
  return {
    state: session?.state ?? "none",
    members: session?.members.map(keyOf) ?? [],
    sides: session?.sides.map((side) => side.map(keyOf)) ?? [],
    removed: Object.fromEntries(session?.removed ?? []),
    games: (session?.matches ?? []).flatMap(({ members: [a, b], verdict }) =>
      verdict === null ? [] : [[keyOf(a), keyOf(b), verdict.outcome, convictedBits(verdict)]],
    ),
    rounds: session?.rounds ?? 0,
    result: result && [result.outcome, toHex(result.accepted)],
    wrong,
    index,
    clause: wrong === "convicted" ? "12.5" : "",
  };
}

/** What the signed entries of a log say, from entry 0 on. */
export function readSession(entries: readonly Uint8Array[], terms: Terms): SessionOutcome {
  let reading: Reading | null = null;
  for (const [index, bytes] of entries.entries()) {
    if (index === entries.length - 1 && isCutOff(bytes, LIMITS.entryBytes)) break;
    if (reading === null) {
      reading = orNull(() => begin(bytes, terms));
      if (reading === null) return outcomeOf(null, "refused", index);
      continue;
    }
    const wrong = take(reading, index, bytes);
    if (wrong !== "") return outcomeOf(reading.session, wrong, index);
  }
  return outcomeOf(reading?.session ?? null, "", -1);
}

/** Whether two signed entries, of any content, convict their referee of equivocation (12.5.1). */
export function equivocates(a: Uint8Array, b: Uint8Array, referee: PublicKey): boolean {
  const [one, other] = [signedBy(referee, a), signedBy(referee, b)];
  if (one === null || other === null || equalBytes(one, other)) return false;
  const [first, second] = [orNull(() => readHead(one)), orNull(() => readHead(other))];
  if (first === null || second === null) return false;
  const sameIndex = first.index > 0 && first.index === second.index;
  return sameIndex && equalBytes(first.previous, second.previous);
}

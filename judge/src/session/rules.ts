/** The rules of a session, fixed in its first entry (PROTOCOL 10.1, 10.1.1, 11.2, 12.2). */

import { compareBytes, equalBytes } from "../bytes.ts";
import { refuse } from "../errors.ts";
import type { Terms } from "../job/terms.ts";
import { LIMITS } from "../limits.ts";
import type { Reader } from "../reader.ts";
import { PublicKey } from "../signatures.ts";
import type { Writer } from "../writer.ts";

/** The latest time in milliseconds (11.1). */
const LATEST = BigInt(Number.MAX_SAFE_INTEGER);
const LONGEST = BigInt(LIMITS.durationMs);

/** Times and durations are bigints: their products and sums pass 2⁵³. */
export interface Rules {
  readonly jobDigest: Uint8Array;
  readonly nonce: Uint8Array;
  readonly referee: PublicKey;
  readonly arity: number;
  readonly mostParties: number;
  /** The time of the sealing deadline. */
  readonly sealing: bigint;
  /** The duration from the closing of the sealing to the opening deadline. */
  readonly opening: bigint;
  readonly budget: bigint;
  readonly step: bigint;
  readonly steps: bigint;
  readonly extension: bigint;
  /** The keys that may take part, ascending; none: any key. */
  readonly keys: readonly PublicKey[];
  readonly offer: Uint8Array;
}

/** A time of 11.1. */
export function readTime(reader: Reader): bigint {
  const time = reader.u64();
  if (time > LATEST) throw refuse(`the time ${time.toString()} is over 2^53 - 1`);
  return time;
}

function readDuration(reader: Reader): bigint {
  const duration = reader.u64();
  if (duration > LONGEST) throw refuse(`the duration ${duration.toString()} is over 2^40`);
  return duration;
}

/** The most time that a party has for a game, without extensions (11.3). */
export function gameTime(rules: Rules): bigint {
  return rules.budget + rules.step * rules.steps;
}

/** Refuses rules that the text allows for no job (10.1.1, 11.2). */
function requireRules(rules: Rules): void {
  if (rules.arity < 2) throw refuse("an arity below 2");
  if (rules.mostParties < 2) throw refuse("a session of fewer than two parties");
  if (gameTime(rules) > LONGEST) throw refuse("budget + step * steps is over 2^40");
  rules.keys.forEach(({ raw }, i) => {
    const before = rules.keys[i - 1];
    if (before !== undefined && compareBytes(before.raw, raw) >= 0)
      throw refuse("keys in disorder");
    if (equalBytes(raw, rules.referee.raw)) throw refuse("the referee's key among the parties'");
  });
}

/** The fields of an entry of kind 1 (12.2), which 10.1.1 and 11.2 must allow. */
export function readRules(reader: Reader): Rules {
  const rules = {
    jobDigest: reader.hash(),
    nonce: reader.hash(),
    referee: new PublicKey(reader.hash()),
    arity: reader.count(256, "the arity"),
    mostParties: reader.count(LIMITS.parties, "the most parties"),
    sealing: readTime(reader),
    opening: readDuration(reader),
    budget: readDuration(reader),
    step: readDuration(reader),
    steps: readDuration(reader),
    extension: readDuration(reader),
    keys: reader.hashes(LIMITS.parties, "keys").map((raw) => new PublicKey(raw)),
    offer: reader.hash(),
  };
  requireRules(rules);
  return rules;
}

export function writeRules(rules: Rules, writer: Writer): void {
  writer.hash(rules.jobDigest).hash(rules.nonce).hash(rules.referee.raw);
  writer.u64(rules.arity).u64(rules.mostParties).u64(rules.sealing).u64(rules.opening);
  writer.u64(rules.budget).u64(rules.step).u64(rules.steps).u64(rules.extension);
  writer.hashes(rules.keys.map(({ raw }) => raw)).hash(rules.offer);
}

/** Refuses rules of another job, and more than two parties under a contract with logs (10.1). */
export function requireJob(rules: Rules, terms: Terms): void {
  if (!equalBytes(rules.jobDigest, terms.jobDigest)) throw refuse("a session of another job");
  if (terms.logs !== null && rules.mostParties > 2) {
    throw refuse("more than two parties under a contract with logs");
  }
}

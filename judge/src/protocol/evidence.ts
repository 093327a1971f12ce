/** The layout of evidence, limits first (PROTOCOL 8.1, 8.5). */
import { equalBytes } from "../bytes.ts";
import { readRunCommitment, type RunCommitment } from "../commitment.ts";
import { refuse } from "../errors.ts";
import type { Terms } from "../job/terms.ts";
import { LIMITS } from "../limits.ts";
import { Reader } from "../reader.ts";
import { sha256 } from "../sha256.ts";
import { readParty } from "./messages.ts";
import type { Party } from "./queries.ts";
import type { Both } from "./rounds.ts";

const DIGEST_BYTES = 32;
/** Of a message: the party, and the length of its blob. */
export const MESSAGE_HEAD_BYTES = 9;
const MIN_ARITY = 2;
const MAX_ARITY = 256;

export interface Message {
  readonly party: Party;
  readonly bytes: Uint8Array;
}

/** The most messages, and bytes of the whole evidence, that a job allows (8.5). */
export interface Bounds {
  readonly messages: number;
  readonly bytes: number;
}

export interface Evidence {
  readonly arity: number;
  readonly bounds: Bounds;
  readonly commitments: Both<RunCommitment>;
  readonly messages: readonly Message[];
  readonly forfeits: readonly Uint8Array[];
}

function readMessage(reader: Reader): Message {
  return { party: readParty(reader), bytes: reader.blob(LIMITS.answerBytes, "a message") };
}

/** A commitment of the job; another one is no party to the game (3.1). */
function commitmentOf(reader: Reader, { jobDigest }: Terms): RunCommitment {
  const commitment = readRunCommitment(reader.blob(LIMITS.commitmentBytes, "a run commitment"));
  if (!equalBytes(commitment.jobDigest, jobDigest)) throw refuse("a run of another job");
  return commitment;
}

/** Reads evidence within the bounds of its job (8.5); everything else is refused (8.3). */
export function readEvidence(
  bytes: Uint8Array,
  terms: Terms,
  boundsOf: (terms: Terms, arity: number) => Bounds,
): Evidence {
  if (bytes.length > LIMITS.evidenceBytes) throw refuse("evidence over its limit");
  if (bytes.length < DIGEST_BYTES) throw refuse("bytes are missing");
  const digestAt = bytes.length - DIGEST_BYTES;
  const content = bytes.subarray(0, digestAt);
  const reader = new Reader(content);
  reader.tag("evidence/1");
  if (!equalBytes(reader.hash(), terms.jobDigest)) throw refuse("evidence of another job");
  const arity = reader.count(MAX_ARITY, "the arity");
  if (arity < MIN_ARITY) throw refuse("an arity below 2");
  const bounds = boundsOf(terms, arity);
  if (bytes.length > bounds.bytes) throw refuse("more evidence than the job allows");
  if (!equalBytes(sha256(content), bytes.subarray(digestAt))) {
    throw refuse("evidence whose digest is not that of its bytes");
  }
  const commitments: Both<RunCommitment> = [
    commitmentOf(reader, terms),
    commitmentOf(reader, terms),
  ];
  const messages = reader.list(bounds.messages, MESSAGE_HEAD_BYTES, "messages", () =>
    readMessage(reader),
  );
  const forfeits = reader.list(2, 8, "forfeits", () =>
    reader.blob(LIMITS.forfeitBytes, "a forfeit"),
  );
  reader.end();
  return { arity, bounds, commitments, messages, forfeits };
}

/** Evidence whose answers come from a forger who holds both parties' keys (PROTOCOL 8.1). */
import { jobOf } from "../../src/job/commitment.ts";
import { jobDigest } from "../../src/job/digest.ts";
import { readTerms, type JobFiles } from "../../src/job/read.ts";
import type { Terms } from "../../src/job/terms.ts";
import { readJson, writeJson, type Json } from "../../src/json.ts";
import { LIMITS } from "../../src/limits.ts";
import { objectOf } from "../../src/members.ts";
import {
  commitmentPayload,
  RUN_COMMITMENT_TYPE,
  type RunCommitment,
} from "../../src/commitment.ts";
import { toHex } from "../../src/bytes.ts";
import { Found } from "../../src/protocol/found.ts";
import { playGame } from "../../src/protocol/game.ts";
import { ANSWER_TYPE, writeQuery } from "../../src/protocol/messages.ts";
import { Convicted, type Asked } from "../../src/protocol/play.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import type { Both } from "../../src/protocol/rounds.ts";
import { writeEnvelope } from "../../src/signatures.ts";
import { Writer } from "../../src/writer.ts";
import { TABLE } from "../../test/program/cases.ts";
import { putTogether } from "../../test/protocol/written.ts";
import { Signer } from "../../test/session/golden.ts";

/** The files that a judge is given. */
export interface Hostile {
  readonly name: string;
  readonly evidence: Uint8Array;
  readonly manifest: Uint8Array;
  readonly program: Uint8Array;
}

export const SIGNERS: Both<Signer> = [
  new Signer(new Uint8Array(32).fill(41)),
  new Signer(new Uint8Array(32).fill(42)),
];

/** A job of format 1 with other members in its commitment, its digests made anew. */
export function jobWith(manifest: Uint8Array, members: Readonly<Record<string, Json>>): Uint8Array {
  const all = new Map(objectOf(readJson(manifest, LIMITS.manifestBytes)));
  const commitment = new Map(objectOf(all.get("commitment") ?? null));
  for (const [name, value] of Object.entries(members)) commitment.set(name, value);
  all.set("commitment", commitment);
  all.set("job_digest", toHex(jobDigest(jobOf(commitment, 1))));
  all.delete("manifest_digest");
  const digest = Writer.tagged("manifest/1").blob(writeJson(all)).digest();
  return writeJson(all.set("manifest_digest", toHex(digest)));
}

export const termsOf = (manifest: Uint8Array, program: Uint8Array): Terms =>
  readTerms({ manifest, programs: [program] } satisfies JobFiles, TABLE);

export type Claim = Omit<RunCommitment, "jobDigest" | "signer">;

/** Answers a query about a party's run; undefined ends the game there. */
export type Answering = (party: Party, query: Query) => Uint8Array | undefined;

export interface Forgery {
  readonly terms: Terms;
  readonly arity: number;
  readonly claims: Both<Claim>;
  readonly answer: Answering;
  /** Messages behind the last answer, and forfeits. */
  readonly more?: (sign: Signing) => readonly { party: Party; bytes: Uint8Array }[];
  readonly forfeits?: readonly Uint8Array[];
}

/** A signed answer of a party (2.3, 2.5). */
export type Signing = (party: Party, query: Query, body: Uint8Array) => Uint8Array;

function commitmentBytes(commitment: RunCommitment, by: Signer): Uint8Array {
  const payload = commitmentPayload(commitment);
  const signature = by.signature(RUN_COMMITMENT_TYPE, payload);
  const signatures = [{ keyId: by.key.id, signature }];
  return writeEnvelope({ payloadType: RUN_COMMITMENT_TYPE, payload, signatures });
}

/** Plays the game by the forger's answers, as far as it goes, and writes the evidence of it. */
export function forged({ terms, arity, claims, answer, more, forfeits = [] }: Forgery): Uint8Array {
  const { jobDigest: job } = terms;
  const of = (party: Party): RunCommitment => ({
    ...claims[party],
    jobDigest: job,
    signer: SIGNERS[party].key,
  });
  const commitments: Both<RunCommitment> = [of(0), of(1)];
  const sign: Signing = (party, query, body) => {
    const head = Writer.tagged("answer/1").hash(job).hash(claims[party].runRoot);
    const data = head.blob(writeQuery(query)).u8(0).raw(body).bytes();
    return SIGNERS[party].signed(ANSWER_TYPE, data);
  };
  const messages: { party: Party; bytes: Uint8Array }[] = [];
  const answered = (asked: readonly Asked[]): { body: Uint8Array }[] | undefined => {
    const answers: { body: Uint8Array }[] = [];
    for (const { party, query } of asked) {
      const body = answer(party, query);
      if (body === undefined) return undefined;
      messages.push({ party, bytes: sign(party, query, body) });
      answers.push({ body });
    }
    return answers;
  };
  const game = playGame({ terms, arity, commitments, found: new Found() });
  try {
    let step = game.next();
    while (step.done !== true) {
      const answers = answered(step.value);
      if (answers === undefined) break;
      step = game.next(answers);
    }
  } catch (error) {
    if (!(error instanceof Convicted)) throw error;
  }
  messages.push(...(more?.(sign) ?? []));
  return putTogether({
    job,
    arity,
    commitments: [commitmentBytes(of(0), SIGNERS[0]), commitmentBytes(of(1), SIGNERS[1])],
    messages,
    forfeits,
  });
}

/** The longest body that an answer to a query may have (2.6.1). */
export function longestBody(query: Query): number {
  const head = Writer.tagged("answer/1").bytes().length + 64 + 8 + writeQuery(query).length + 1;
  return LIMITS.answerBytes - 8 - head - 64;
}

/** Forfeits: what a referee must have signed, and two at once (PROTOCOL 2.10, 2.10.2, 8.3). */
import { describe, expect, test } from "vitest";

import type { Json } from "../../src/json.ts";
import { openSignedAnswer } from "../../src/protocol/messages.ts";
import { readForfeit } from "../../src/protocol/forfeit.ts";
import { judge, type Judgement } from "../../src/protocol/judge.ts";
import { commitmentPayload, readRunCommitment, RUN_COMMITMENT_TYPE } from "../../src/commitment.ts";
import { RefusedError } from "../../src/errors.ts";
import { writeEnvelope, type PublicKey } from "../../src/signatures.ts";
import { Signer } from "../session/golden.ts";
import { Bundle } from "./bundles.ts";
import { forfeitMembers, putTogether, signedForfeit, takenApart } from "./written.ts";

const REFEREE = new Signer(new Uint8Array(32).fill(5));
const STRANGER = new Signer(new Uint8Array(32).fill(6));
const JOB = new Uint8Array(32).fill(1);
const ROOTS = [new Uint8Array(32).fill(2), new Uint8Array(32).fill(3)] as const;
const QUERY = Uint8Array.of(1, 2, 3);
const GAME = { jobDigest: JOB, runRoots: ROOTS };
const members = (): Map<string, Json> => forfeitMembers(JOB, ROOTS, 1, QUERY, REFEREE.key.raw);

describe("a forfeit", () => {
  test("says whose answer did not come, and to which query", () => {
    const { party, query, referee } = readForfeit(signedForfeit(members(), REFEREE), GAME);
    expect({ party, query }).toEqual({ party: 1, query: QUERY });
    expect(referee.raw).toEqual(REFEREE.key.raw);
  });

  const OTHERS: readonly (readonly [string, Json])[] = [
    ["kind", "tallystick/forfeit/2"],
    ["job_digest", "00".repeat(32)],
    ["run_roots", ["03".repeat(32), "02".repeat(32)]],
    ["run_roots", ["02".repeat(32)]],
    ["run_roots", ["02".repeat(32), "03".repeat(32), "03".repeat(32)]],
    ["party", 2],
    ["party", true],
    ["query", "0102ZZ"],
    ["referee", "00".repeat(32)],
    ["another", 1],
  ];
  test.each(OTHERS)("is refused with another %s: %j", (name, value) => {
    const changed = members().set(name, value);
    expect(() => readForfeit(signedForfeit(changed, REFEREE), GAME)).toThrow(RefusedError);
  });

  test("is refused without a member, under another key, or as another type", () => {
    const less = members();
    less.delete("query");
    for (const bytes of [
      signedForfeit(less, REFEREE),
      signedForfeit(members(), STRANGER),
      signedForfeit(members(), REFEREE, "application/json"),
    ]) {
      expect(() => readForfeit(bytes, GAME)).toThrow(RefusedError);
    }
  });
});

describe("a game that a silence ends", () => {
  const bundle = new Bundle("refusals");
  const [whole] = bundle.cases.filter(({ name }) => name === "whole");
  if (whole === undefined) throw new Error("no evidence named whole");
  const parts = takenApart(bundle.evidence(whole));
  const runs = parts.commitments.map(readRunCommitment);
  const terms = bundle.terms(whole);
  /** The queries of the first round in which both parties are asked, which is the first round. */
  const queryOf = (party: 0 | 1): Uint8Array => {
    const message = parts.messages.find((one) => one.party === party);
    const run = runs[party];
    if (message === undefined || run === undefined) throw new Error("no message");
    return openSignedAnswer(message.bytes, run).query;
  };
  const word = (party: 0 | 1, by = REFEREE, query = queryOf(party)): Uint8Array => {
    const roots = runs.map(({ runRoot }) => runRoot);
    return signedForfeit(forfeitMembers(parts.job, roots, party, query, by.key.raw), by);
  };
  const judged = (
    messages: typeof parts.messages,
    forfeits: readonly Uint8Array[],
    referees: readonly PublicKey[] = [REFEREE.key],
  ): Judgement => judge(putTogether({ ...parts, messages, forfeits }), terms, { referees });
  const convicted = ({ convicted: all }: Judgement): unknown =>
    all.map(({ clause, party }) => `${party} ${clause}`);

  test("taken apart and put together, evidence is the same", () => {
    expect(putTogether(parts)).toEqual(Uint8Array.from(bundle.evidence(whole)));
  });

  test("both forfeit where neither has answered", () => {
    const both = judged([], [word(0), word(1)]);
    expect(convicted(both)).toEqual(["A 2.10", "B 2.10"]);
    expect(both).toMatchObject({ forfeit: true, rests_on: "referee", accepted: null });
    expect(both.referee).toBe(REFEREE.key.id);
  });

  test("one forfeits where the other has answered", () => {
    const [first] = parts.messages;
    const silent = first?.party === 0 ? 1 : 0;
    const answered = parts.messages.slice(0, 1);
    expect(convicted(judged(answered, [word(silent)]))).toEqual([`${"AB".charAt(silent)} 2.10`]);
    const answerer = first?.party ?? 0;
    expect(() => judged(answered, [word(answerer)])).toThrow(RefusedError);
    expect(() => judged(answered, [word(0), word(1)])).toThrow(RefusedError);
  });

  test("no party forfeits another one's answer, whichever referees are believed (2.10.1)", () => {
    for (const party of [0, 1] as const) {
      const [run, own] = [runs[party], parts.commitments[1 - party]];
      if (run === undefined || own === undefined) throw new Error("no commitment");
      const payload = commitmentPayload({ ...run, signer: REFEREE.key });
      const signature = REFEREE.signature(RUN_COMMITMENT_TYPE, payload);
      const signatures = [{ keyId: REFEREE.key.id, signature }];
      const signed = writeEnvelope({ payloadType: RUN_COMMITMENT_TYPE, payload, signatures });
      const commitments = party === 0 ? [signed, own] : [own, signed];
      const evidence = putTogether({
        ...parts,
        commitments,
        messages: [],
        forfeits: [word(0), word(1)],
      });
      const referees = [REFEREE.key];
      expect(() => judge(evidence, terms, { referees })).toThrow("a party has signed");
    }
  });

  test("what is no word about this silence is refused", () => {
    const other = Uint8Array.from(queryOf(0)).fill(7, 10, 11);
    for (const forfeits of [
      [],
      [word(1), word(0)],
      [word(0), word(0)],
      [word(0, REFEREE, other), word(1)],
      [word(0), word(1, STRANGER)],
    ]) {
      expect(() => judged([], forfeits, [REFEREE.key, STRANGER.key])).toThrow(RefusedError);
    }
    expect(() => judged([], [word(0), word(1)], [STRANGER.key])).toThrow(RefusedError);
    expect(() => judged(parts.messages, [word(0)])).toThrow(RefusedError);
  });
});

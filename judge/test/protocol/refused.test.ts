/** Evidence that is refused by its frame, before a message is read (PROTOCOL 3.1, 8.3, 8.5). */
import { expect, test } from "vitest";

import { RefusedError } from "../../src/errors.ts";
import type { Step } from "../../src/job/terms.ts";
import { LIMITS } from "../../src/limits.ts";
import { judge } from "../../src/protocol/judge.ts";
import type { Party } from "../../src/protocol/queries.ts";
import { convictionOf } from "../../src/protocol/rounds.ts";
import { sha256 } from "../../src/sha256.ts";
import { Writer } from "../../src/writer.ts";
import { Bundle } from "./bundles.ts";
import { putTogether, takenApart } from "./written.ts";

const bundle = new Bundle("clauses");
const [one] = bundle.cases;
if (one === undefined) throw new Error("a bundle without cases");
const parts = takenApart(bundle.evidence(one));
const terms = bundle.terms(one);
const judged = (evidence: Uint8Array) => () => judge(evidence, terms, { referees: [] });

test("a commitment of another job, in either seat", () => {
  const strange = bundle.cases.find((other) => other.job !== one.job);
  if (strange === undefined) throw new Error("one job only");
  const [other] = takenApart(bundle.evidence(strange)).commitments;
  const [a, b] = parts.commitments;
  if (other === undefined || a === undefined || b === undefined) throw new Error("no commitment");
  for (const commitments of [
    [other, b],
    [a, other],
  ]) {
    expect(judged(putTogether({ ...parts, commitments }))).toThrow("a run of another job");
  }
  expect(judged(putTogether({ ...parts, job: new Uint8Array(32) }))).toThrow(
    "evidence of another job",
  );
});

test("more bytes than evidence may have, or too few for a digest", () => {
  const filled = new Uint8Array(LIMITS.evidenceBytes + 1);
  const content = filled.subarray(0, -32);
  filled.set(sha256(content), content.length);
  expect(judged(filled)).toThrow("over its limit");
  expect(judged(filled.subarray(1))).not.toThrow("over its limit");
  expect(judged(new Uint8Array(31))).toThrow("bytes are missing");
});

test("an arity of none, of one, or of more than 256", () => {
  for (const arity of [0, 1, 257]) {
    expect(judged(putTogether({ ...parts, arity }))).toThrow("arity");
  }
});

test("bytes behind the forfeits", () => {
  const content = putTogether(parts).subarray(0, -32);
  const longer = new Writer().raw(content).u8(0).bytes();
  const evidence = new Writer().raw(longer).raw(sha256(longer)).bytes();
  expect(judged(evidence)).toThrow("left over");
});

/** The first game of the bundle that comes to phase 3. */
const reached = bundle.cases.find(({ found }) => "phase" in found && found.phase === 3);
if (reached === undefined) throw new Error("no game that comes to phase 3");
const played = takenApart(bundle.evidence(reached));
const [message, ...others] = played.messages;
if (message === undefined) throw new Error("no messages");

test("messages behind the end of the game, whether it convicts or not", () => {
  for (const agreement of [true, false]) {
    const ended = bundle.cases.find(
      ({ found }) => "agreement" in found && found.agreement === agreement,
    );
    if (ended === undefined) throw new Error("no such game");
    const own = takenApart(bundle.evidence(ended));
    const longer = putTogether({ ...own, messages: [...own.messages, message] });
    const judgedAgain = () => judge(longer, bundle.terms(ended), { referees: [] });
    expect(judgedAgain).toThrow("messages are left over");
  }
});

test("an answer unable with a body, or of another status, does not follow its layout (2.3)", () => {
  const of = (status: number, ...body: number[]): string | undefined =>
    convictionOf(1, { status, body: Uint8Array.from(body) })?.clause;
  expect([of(0), of(0, 1), of(1), of(1, 0), of(2), of(255, 1)]).toEqual([
    undefined,
    undefined,
    "2.8",
    "2.7",
    "2.7",
    "2.7",
  ]);
});

test("a message of a party that there is not", () => {
  const strange = { ...message, party: 2 as Party };
  const evidence = putTogether({ ...played, messages: [strange, ...others] });
  expect(() => judge(evidence, bundle.terms(reached), { referees: [] })).toThrow("no party 2");
});

test("a game in which a true answer would be over its limit, by states without number", () => {
  const own = bundle.terms(reached);
  const step = (t: number): Step => {
    const { program, ...more } = own.step(t);
    const [state] = program.nextStates;
    if (state === undefined) throw new Error("no states");
    const nextStates = Array<typeof state>(LIMITS.answerBytes / 32).fill(state);
    return { ...more, program: { ...program, nextStates } };
  };
  const judgedSo = () => judge(bundle.evidence(reached), { ...own, step }, { referees: [] });
  expect(judgedSo).toThrow(RefusedError);
  expect(judgedSo).toThrow("no verdict");
});

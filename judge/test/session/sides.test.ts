/** Sides and their order, whatever the order in which messages came (PROTOCOL 10.4, 10.5). */
import { expect, test } from "vitest";

import type { RunCommitment } from "../../src/commitment.ts";
import { firstSigners, type Member, pairs, sidesOf } from "../../src/session/sides.ts";
import { ANN, BEN, CAT, hash, RULES } from "./builder.ts";
import { Signer } from "./golden.ts";

const DAN = new Signer(hash(24));
const CLAIM = {
  jobDigest: RULES.jobDigest,
  runRoot: hash(7),
  finalStep: 4,
  finalStateRoot: hash(8),
  checkpoints: 3,
};

const member = ({ key }: Signer, claim: Partial<RunCommitment> = {}): Member => ({
  commitment: { ...CLAIM, ...claim, signer: key },
  envelope: new Uint8Array(),
});

const OTHERS: readonly Partial<RunCommitment>[] = [
  { runRoot: hash(9), finalStep: 1, checkpoints: 1, finalStateRoot: hash(1) },
  { finalStep: 5, checkpoints: 1, finalStateRoot: hash(1) },
  { checkpoints: 4, finalStateRoot: hash(1) },
  { finalStateRoot: hash(9) },
];

test.each(OTHERS)("another claim is another side, and behind the lesser one: %j", (other) => {
  const [one, two] = [member(BEN), member(ANN, other)];
  expect(sidesOf([one, two])).toEqual([[one], [two]]);
  expect(sidesOf([two, one])).toEqual([[one], [two]]);
});

test("signers of one claim are ordered by their keys, and the first one left plays", () => {
  const [a, b, c] = [member(ANN), member(BEN), member(CAT)];
  const d = member(DAN, { finalStep: 5 });
  for (const members of [
    [a, d, b, c],
    [c, b, d, a],
  ]) {
    const sides = sidesOf(members);
    expect(sides).toEqual([[a, b, c], [d]]);
    expect(firstSigners(sides, (one) => one !== a)).toEqual([b, d]);
    expect(firstSigners(sides, (one) => one !== d)).toEqual([a]);
  }
});

test("the last of an odd number waits", () => {
  const [a, b, c, d] = [member(ANN), member(BEN), member(CAT), member(DAN)];
  expect(pairs([])).toEqual([]);
  expect(pairs([a])).toEqual([]);
  expect(pairs([a, b, c])).toEqual([[a, b]]);
  expect(pairs([a, b, c, d])).toEqual([
    [a, b],
    [c, d],
  ]);
});

/** Answers of a party that says anything: the referee that logs them is not convicted (12.5). */

import { expect, test } from "vitest";

import { concatBytes, equalBytes } from "../../src/bytes.ts";
import { LIMITS } from "../../src/limits.ts";
import { ANSWER_TYPE } from "../../src/protocol/messages.ts";
import { entryDigest, readEntry, writeEntry } from "../../src/session/entries.ts";
import { readSession } from "../../src/session/log.ts";
import { readSigned } from "../../src/protocol/signed.ts";
import { ENTRY_TYPE } from "../../src/session/signed.ts";
import { words } from "../vectors.ts";
import { REFEREE } from "./builder.ts";
import { entriesOf, Signer, TERMS } from "./golden.ts";

/** The parties of the vectors have private keys of one number. */
const PARTIES = Array.from({ length: 24 }, (_, n) => {
  const seed = new Uint8Array(32);
  seed[31] = n;
  return new Signer(seed);
});
const HEAD = "tallystick/answer/1\0".length + 64;

/** Where the status of an answer is: behind job, run and query. */
function statusAt(answer: Uint8Array): number {
  const view = new DataView(answer.buffer, answer.byteOffset);
  return HEAD + 8 + Number(view.getBigUint64(HEAD, true));
}

/** Other words in the place of an answer's status and body. */
function others(answer: Uint8Array, next: () => number): Uint8Array[] {
  const at = statusAt(answer);
  const kept = answer.subarray(0, at);
  const place = at + 1 + (next() % (answer.length - at - 1));
  const flipped = Uint8Array.from(answer, (byte, i) => (i === place ? byte ^ 1 : byte));
  const junk = Uint8Array.from({ length: 40 }, () => next() & 255);
  return [
    flipped,
    answer.subarray(0, place),
    concatBytes(kept, Uint8Array.of(1)),
    concatBytes(kept, Uint8Array.of(2), junk),
    concatBytes(kept, Uint8Array.of(0), junk),
  ];
}

test("the log of a liar of three, with other words of both parties", () => {
  const entries = entriesOf("a liar of three");
  const next = words(3);
  let read = 0;
  for (const [index, bytes] of entries.entries()) {
    const entry = readEntry(readSigned(bytes, LIMITS.entryBytes).data);
    const { said } = entry;
    if (said.kind !== "answered" || index % 3 !== 0) continue;
    const { data, signature } = readSigned(said.message, LIMITS.answerBytes);
    const signer = PARTIES.find((one) => equalBytes(one.signature(ANSWER_TYPE, data), signature));
    expect(signer).toBeDefined();
    if (signer === undefined) continue;
    for (const answer of others(data, next)) {
      const message = signer.signed(ANSWER_TYPE, answer);
      const other = writeEntry({ ...entry, said: { ...said, message } });
      const log = [...entries.slice(0, index), REFEREE.signed(ENTRY_TYPE, other)];
      expect(readSession(log, TERMS)).toMatchObject({ state: "playing", wrong: "" });
      // But no answer in the middle of a game makes this result follow.
      const result = { kind: "result", outcome: 4, accepted: new Uint8Array(32) } as const;
      const after = { index: index + 1, previous: entryDigest(other), time: entry.time };
      log.push(REFEREE.signed(ENTRY_TYPE, writeEntry({ ...after, said: result })));
      expect(readSession(log, TERMS)).toMatchObject({ wrong: "convicted", index: index + 1 });
      read++;
    }
  }
  expect(read).toBeGreaterThan(10);
}, 120_000);

/** What is read is written again as it was (PROGRAM 3.1), and no byte of it can be another one. */
import { expect, test } from "vitest";

import { fromUtf8, toUtf8 } from "../../src/bytes.ts";
import { expansionOf } from "../../src/program/expansion.ts";
import { readProgram } from "../../src/program/read.ts";
import { words } from "../vectors.ts";
import { casesOf, fileOf, orRefused, TABLE } from "./cases.ts";
import { written } from "./written.ts";

const ACCEPTED = casesOf("programs").filter(({ refused, text }) => !refused && text !== undefined);

function again(bytes: Uint8Array): string {
  const { text } = readProgram(bytes, TABLE);
  return written(text, expansionOf(text, 1, TABLE), 1);
}

test.each(ACCEPTED.filter(({ text }) => text?.startsWith("tallystick program 1")))(
  "$name",
  (one) => {
    expect(again(fileOf(one))).toBe(one.text);
  },
);

test("an altered text is refused, or is the canonical text of another program", () => {
  const word = words(17);
  const counts = { refused: 0, read: 0 };
  for (let round = 0; round < 3000; round++) {
    const one = ACCEPTED[word() % ACCEPTED.length];
    const text = fromUtf8(one === undefined ? new Uint8Array() : fileOf(one));
    const at = word() % text.length;
    const from = word() % text.length;
    const piece = text.slice(from, from + (word() % 4));
    const altered = text.slice(0, at) + piece + text.slice(at + (word() % 4));
    const result = orRefused(() => {
      const { text: read } = readProgram(toUtf8(altered), TABLE);
      return read.version === 2 ? "text 2" : again(toUtf8(altered));
    });
    if (result === "refused") counts.refused++;
    else counts.read++;
    expect(["refused", "text 2", altered]).toContain(result);
  }
  expect(counts.refused).toBeGreaterThan(500);
  expect(counts.read).toBeGreaterThan(100);
});

import { describe, expect, test } from "vitest";

import { toHex, toUtf8 } from "../../src/bytes.ts";
import { expansionOf } from "../../src/program/expansion.ts";
import { readProgram } from "../../src/program/read.ts";
import type { ProgramText } from "../../src/program/text.ts";
import { sha256 } from "../../src/sha256.ts";
import { casesOf, fileOf, orRefused, TABLE } from "./cases.ts";
import { written } from "./written.ts";

describe("vectors/program/index.json, expansions (PROGRAM 6.7)", () => {
  test.each(casesOf("expansions").map((one) => [one.name, one] as const))("%s", (_, one) => {
    const V = one.micro_batches ?? 0;
    const { text } = readProgram(fileOf(one), TABLE);
    const expanded = orRefused(() => {
      const expansion = expansionOf(text, V, TABLE);
      return {
        nodes: expansion.nodeCount,
        expansion: toHex(sha256(toUtf8(written(text, expansion, V)))),
      };
    });
    const { nodes, expansion } = one;
    expect(expanded).toEqual(one.refused === true ? "refused" : { nodes, expansion });
  });
});

/** A program of so many nodes, all of them the section, or without one. */
function negations(count: number, section: boolean): ProgramText {
  const lines = [
    `tallystick program ${section ? 2 : 1}`,
    ...["contract ordered/1-draft.1", "input batch batch.a f32[2]", "input state s f32[2]"],
    ...(section ? [`micro ${count}`] : []),
    ...Array.from({ length: count }, (_, k) => `%${k} = aten.neg(@s) : f32[2]`),
    ...["output loss @s", "end\n"],
  ];
  return readProgram(toUtf8(lines.join("\n")), TABLE).text;
}

describe("bounds of micro-batches (PROGRAM 6.7)", () => {
  const count = (size: number, V: number): number | "refused" =>
    orRefused(() => expansionOf(negations(size, true), V, TABLE).nodeCount);

  test("from one on, and together at most 1,000,000 nodes", () => {
    expect([count(3, 0), count(3, -1), count(3, 1)]).toEqual(["refused", "refused", 3]);
    expect([count(1000, 1000), count(1000, 1001)]).toEqual([1000000, "refused"]);
  });

  test("a text 1 has one (COMMITMENTS 7.6.9)", () => {
    const of = (V: number): number | "refused" =>
      orRefused(() => expansionOf(negations(2, false), V, TABLE).nodeCount);
    expect([of(0), of(1), of(2)]).toEqual(["refused", 2, "refused"]);
  });

  test.each([false, true])(
    "an input that is no batch reads no records (section: %s)",
    (section) => {
      const expansion = expansionOf(negations(2, section), 1, TABLE);
      expect(orRefused(() => expansion.batchInput("s"))).toBe("refused");
      expect(expansion.batchInput(section ? "batch.a#0" : "batch.a")).toEqual({
        first: 0,
        field: "a",
      });
    },
  );
});

import { describe, expect, test } from "vitest";

import { toHex, toUtf8 } from "../../src/bytes.ts";
import { expansionOf } from "../../src/program/expansion.ts";
import { readProgram } from "../../src/program/read.ts";
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

import { describe, expect, test } from "vitest";

import { toHex } from "../../src/bytes.ts";
import { readProgram } from "../../src/program/read.ts";
import { casesOf, fileOf, orRefused, TABLE } from "./cases.ts";

describe("vectors/program/index.json, programs (PROGRAM 1 to 4, 6)", () => {
  test.each(casesOf("programs").map((one) => [one.name, one] as const))("%s", (_, one) => {
    const read = orRefused(() => toHex(readProgram(fileOf(one), TABLE).digest));
    expect(read).toBe(one.digest ?? "refused");
  });
});

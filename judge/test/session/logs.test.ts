import { describe, expect, test } from "vitest";

import { readSession } from "../../src/session/log.ts";
import { bytesAt, FILE, TERMS } from "./golden.ts";

describe("vectors/protocol/sessions.json: logs (PROTOCOL 10 to 12)", () => {
  test("there are 29", () => {
    expect(FILE.logs).toHaveLength(29);
  });

  test.each(FILE.logs)("$name", ({ entries, outcome }) => {
    expect(readSession(entries.map(bytesAt), TERMS)).toEqual(outcome);
  });
});

/** The limits are those of the table in COMMITMENTS 11.1. */
import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { LIMITS } from "../src/limits.ts";

const TEXT = readFileSync(new URL("../../spec/COMMITMENTS.md", import.meta.url), "utf8");
const [, SECTION = ""] = TEXT.split("\n## 11. Limits\n");

/** `name_bytes` as this package names it. */
const camel = (name: string): string =>
  name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

test("every limit of the table is here with its value, and no other is", () => {
  const rows = [...SECTION.matchAll(/^\| ([a-z_]+) \| ([0-9]+) \|/gm)];
  expect(rows.length).toBeGreaterThan(40);
  const stated = rows.map(([, name = "", value]) => [camel(name), Number(value)]);
  expect(LIMITS).toEqual(Object.fromEntries(stated));
});

/** The scalars of a manifest, and how many a job may have (COMMITMENTS 7.3, 11.1). */
import { expect, test } from "vitest";

import { scalarsOf } from "../../src/job/scalars.ts";
import { LIMITS } from "../../src/limits.ts";
import { orRefused } from "../program/cases.ts";

const many = (count: number) =>
  new Map(Array.from({ length: count }, (_, k) => [`s${k}`, "0x1.8000000000000p+1"]));

test("256 scalars", () => {
  const most = scalarsOf(many(LIMITS.scalarTables));
  expect([most.size, most.get("s255")]).toEqual([256, 3]);
  expect(orRefused(() => scalarsOf(many(LIMITS.scalarTables + 1)))).toBe("refused");
});

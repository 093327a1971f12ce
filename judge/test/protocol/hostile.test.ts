/** Evidence with altered bytes is refused, or has the verdict of the messages that are left. */
import { expect, it } from "vitest";

import { sha256 } from "../../src/sha256.ts";
import { words } from "../vectors.ts";
import { Bundle } from "./bundles.ts";

const ALTERED = 40;
const DIGEST_BYTES = 32;
const SEED = 20261128;

/** The digest at the end is that of the altered bytes: the layout is read to where it breaks. */
function sealed(bytes: Uint8Array): Uint8Array {
  const end = bytes.length - DIGEST_BYTES;
  bytes.set(sha256(bytes.subarray(0, end)), end);
  return bytes;
}

it("refuses evidence with a byte altered anywhere", () => {
  const bundle = new Bundle("refusals");
  const whole = bundle.cases.find(({ name }) => name === "whole");
  if (whole === undefined) throw new Error("no whole case");
  expect(bundle.judge(whole).code).toBe(1);
  const next = words(SEED);
  for (let k = 0; k < ALTERED; k++) {
    const bytes = bundle.evidence(whole);
    const at = next() % (bytes.length - DIGEST_BYTES);
    bytes[at] = (bytes[at] ?? 0) ^ (1 << (next() % 8));
    const { code, refusal } = bundle.judge(whole, sealed(bytes));
    expect([at, code, refusal]).toEqual([at, 2, expect.any(String)]);
  }
});

it("refuses evidence that is cut off anywhere", () => {
  const bundle = new Bundle("refusals");
  const whole = bundle.cases.find(({ name }) => name === "whole");
  if (whole === undefined) throw new Error("no whole case");
  const next = words(SEED);
  for (let k = 0; k < ALTERED; k++) {
    const bytes = bundle.evidence(whole);
    const cut = bytes.slice(0, DIGEST_BYTES + (next() % (bytes.length - DIGEST_BYTES)));
    expect(bundle.judge(whole, sealed(cut)).refusal).toEqual(expect.any(String));
  }
});

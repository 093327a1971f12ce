/** Every bundle of evidence has the verdict that it states (vectors/protocol/README.md). */
import { describe, expect, it } from "vitest";

import { Bundle, bundleNames, type BundleCase, type Outcome } from "./bundles.ts";

/** All that a refusal says of a case; its sentence is free. */
function statedOf({ found }: BundleCase): unknown {
  return "error" in found ? "refused" : found;
}

const reachedOf = ({ found, refusal }: Outcome): unknown =>
  refusal === undefined ? found : "refused";

describe.each(bundleNames())("%s", (name) => {
  const bundle = new Bundle(name);

  it.each(bundle.cases.map((one) => [one.name, one] as const))("%s", (_, one) => {
    const outcome = bundle.judge(one);
    expect(reachedOf(outcome)).toEqual(statedOf(one));
    expect(outcome.code).toBe(one.code);
  });
});

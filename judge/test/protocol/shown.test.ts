/** Values are shown as the verdicts of the vectors show them. */
import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { shown } from "../../src/protocol/shown.ts";
import { jsonOfVectors } from "../vectors.ts";

const BUNDLES = readdirSync(new URL("../../../vectors/protocol/", import.meta.url)).filter(
  (name) => name.endsWith(".json") && name !== "sessions.json",
);

interface Case {
  readonly found: { readonly claimed?: readonly string[]; readonly value?: string };
}

/** All texts of values that the verdicts of the bundles have. */
const TEXTS = new Set(
  BUNDLES.flatMap((name) => (jsonOfVectors(`protocol/${name}`) as { cases: Case[] }).cases).flatMap(
    ({ found }) => [...(found.claimed ?? []), found.value ?? ""],
  ),
);

test.each([
  ["f32", 8],
  ["f64", 16],
] as const)("%s", (dtype, digits) => {
  const form = new RegExp(`^[-0-9a-z.+]+ \\(0x([0-9a-f]{${digits}})\\)$`);
  let count = 0;
  const wrong: string[] = [];
  for (const text of TEXTS) {
    const bits = form.exec(text)?.[1];
    if (bits === undefined) continue;
    count += 1;
    const found = shown(dtype, BigInt(`0x${bits}`));
    if (found !== text) wrong.push(`${found}, not ${text}`);
  }
  expect(wrong).toEqual([]);
  expect(count).toBeGreaterThan(1);
});

test("exact sums", () => {
  let count = 0;
  for (const text of TEXTS) {
    const [, sign, sum, flags] = /\((-?)0x([0-9a-f]+) \* 2\^-298, flags (\d+)\)$/.exec(text) ?? [];
    if (sum === undefined) continue;
    count += 1;
    const size = BigInt(`0x${sum}`);
    const whole = BigInt.asUintN(632, sign === "-" ? -size : size);
    expect(shown("acc", (BigInt(flags ?? "0") << 632n) | whole)).toBe(text);
  }
  expect(count).toBeGreaterThan(1);
});

test("a pair, a block and others", () => {
  const pair = (0x3d00000000000000n << 64n) | 0x3ff0000000000000n;
  expect(shown("real", pair)).toBe("1.0 within 7.11e-15");
  const radii = [0x7ff0000000000000n, 0x7ff8000000000000n, 0n];
  expect(radii.map((bits) => shown("real", bits << 64n))).toEqual([
    "0.0 within inf",
    "0.0 within nan",
    "0.0 within 0",
  ]);
  expect(shown("acc", 0n)).toBe("the exact sum 0.0 (0x0 * 2^-298, flags 0)");
  const block = (0x3eefab62n << 160n) | (0x3ef022fen << 128n) | 0x3fcc200000000000n;
  expect(shown("blk", block)).toBe(
    "the total 0.2197265625, the block's sum 0, magnitudes 0x3ef022fe and 0x3eefab62",
  );
  expect(shown("bool", 1n)).toBe("True");
  expect(shown("i64", (1n << 64n) - 3n)).toBe("-3");
});

import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { bitsOf, f32OfBits, f64OfBits } from "../../src/numbers/bits.ts";
import { exactly } from "../../src/numbers/rounding.ts";
import { quantityOf } from "../../src/operators/element.ts";
import { Grid } from "../../src/operators/grid.ts";
import { reachOf } from "../../src/operators/published.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail, hexOf, valueOf } from "./calls.ts";
import { goldenCalls } from "./golden.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
const { calls } = jsonOfVectors("real/published.json") as { calls: Record<string, string> };
const { reach, values } = jsonOfVectors("rounded/published.json") as {
  reach: { b: number; x: string; E: string; V: [string, string][]; forged: number[] }[];
  values: { b: number; x: string; values: string[] }[];
};
const GROUPS = [...new Set(Object.keys(calls).map((name) => name.split("[")[0] ?? ""))];

/** The 16 bytes of a stated pair. */
function bytesOf(pair: bigint): Buffer {
  return Buffer.from(pair.toString(16).padStart(32, "0"), "hex").reverse();
}

describe("pairs of published elements (vectors/real)", () => {
  test.each(GROUPS)("%s", (group) => {
    const wrong: string[] = [];
    goldenCalls(`kernels/${group}`, TABLE).forEach(({ call, operands, outputs }, ordinal) => {
      const name = `${group}[${ordinal}] ${call.operator.name}`;
      const hash = createHash("sha256");
      let stated = 0;
      outputs.forEach((tensor, output) => {
        const count = tensor.elements.length;
        for (let position = 0; position < count; position += Math.max(1, Math.floor(count / 24))) {
          const quantity =
            quantityOf({ family: "published", B: 32 }, { call, output, position }) ?? fail(name);
          if (quantity.kind !== "logged" || quantity.name !== "R(x)") continue;
          for (const need of quantity.needs) {
            if (need.dtype !== "real") continue;
            hash.update(bytesOf(valueOf(need, operands)));
            stated += 1;
          }
        }
      });
      const due = calls[name];
      if (due === undefined ? stated > 0 : hash.digest("hex") !== due) wrong.push(name);
    });
    expect(wrong).toEqual([]);
  });
});

describe("vectors/rounded/published.json", () => {
  test("reach: V(c), and forged entries", () => {
    for (const { b, x, E, V, forged } of reach) {
      const [v, bound] = [x, E].map((bits) => exactly(f64OfBits(BigInt(`0x${bits}`))));
      const found = reachOf(v ?? fail(x), bound ?? fail(E), b);
      expect(([0, 1, 2] as const).filter((entry) => found.isForged(entry))).toEqual(forged);
      const grid = new Grid(b);
      V.forEach((ends, entry) => {
        const [least = 0, greatest = 0] = ends.map((text) =>
          grid.count(f32OfBits(parseInt(text, 16))),
        );
        const holds = (count: number): boolean =>
          found.holds(bitsOf("f32", grid.element(count)), entry as 0 | 1 | 2);
        expect([least, greatest].map(holds)).toEqual([true, true]);
        expect(holds(least - 1) || holds(greatest + 1)).toBe(false);
      });
    }
  });

  test("values: rev(x, c) towards either side", () => {
    for (const { b, x, values: due } of values) {
      const number = f64OfBits(BigInt(`0x${x}`));
      if (!Number.isFinite(number)) continue;
      const grid = new Grid(b);
      const found = ([0, 1, 2] as const).map((entry) =>
        grid.element(grid.towards(exactly(number), entry)),
      );
      // A zero has r's sign there, and none here.
      expect(found.map((one) => hexOf("f32", bitsOf("f32", one)))).toEqual(
        due.map((text) => (text === "80000000" ? "00000000" : text)),
      );
    }
  });
});

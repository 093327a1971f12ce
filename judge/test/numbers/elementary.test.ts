import { describe, expect, test } from "vitest";
import { bitsOfF32, f32OfBits } from "../../src/numbers/bits.ts";
import { ELEMENTARY, elementary } from "../../src/numbers/elementary.ts";
import { power } from "../../src/numbers/power.ts";
import { bytesOfVectors, words } from "../vectors.ts";

const hex = (x: number): string => bitsOfF32(x).toString(16).padStart(8, "0");

/** The rows of a file of little-endian 32-bit words. */
function rows(name: string, columns: number): number[][] {
  const bytes = bytesOfVectors(`elementary/${name}.bin`);
  const found: number[][] = [];
  for (let at = 0; at < bytes.length; at += 4 * columns) {
    found.push(Array.from({ length: columns }, (_, k) => bytes.readUInt32LE(at + 4 * k)));
  }
  return found;
}

describe("the elementary functions (NUMERICS 5)", () => {
  test.each(ELEMENTARY)("%s gives the bits of vectors/elementary", (name) => {
    const wrong = rows(name, 2).filter(
      ([x = 0, want = 0]) => bitsOfF32(elementary(name, f32OfBits(x))) !== want,
    );
    expect(wrong.map((row) => row.map((word) => word.toString(16)))).toEqual([]);
  });

  test("pow gives the bits of vectors/elementary", () => {
    const wrong = rows("pow", 3).filter(
      ([x = 0, y = 0, want = 0]) => bitsOfF32(power(f32OfBits(x), f32OfBits(y))) !== want,
    );
    expect(wrong.map((row) => row.map((word) => word.toString(16)))).toEqual([]);
  });

  test("every function is within a binary32 step of what Math has", () => {
    const near: Record<string, (x: number) => number> = {
      exp: Math.exp,
      exp2: (x) => 2 ** x,
      expm1: Math.expm1,
      log: Math.log,
      log2: Math.log2,
      log1p: Math.log1p,
      tanh: Math.tanh,
      sigmoid: (x) => 1 / (1 + Math.exp(-x)),
      sin: Math.sin,
      cos: Math.cos,
      rsqrt: (x) => 1 / Math.sqrt(x),
    };
    const next = words(20);
    for (const name of ELEMENTARY) {
      const about = near[name];
      if (about === undefined) continue;
      for (let k = 0; k < 300; k++) {
        const x = f32OfBits(next());
        const close = Math.fround(about(x));
        const steps = bitsOfF32(elementary(name, x)) - bitsOfF32(close);
        expect(Math.abs(steps), `${name}(${hex(x)})`).toBeLessThanOrEqual(1);
      }
    }
  });

  test("powers of 2 as small as a half of the least number, which is a tie (1.2, 5.8)", () => {
    const rows: [x: number, y: number, due: number][] = [
      [2, -149, 2 ** -149],
      [2, -150, 0],
      [4, -75, 0],
      [2 ** 75, -2, 0],
      [2 ** -75, 2, 0],
      [-(2 ** 50), -3, -0],
      [0.5, 149, 2 ** -149],
      [2, 127, 2 ** 127],
      [2, 128, Infinity],
      [0.5, -128, Infinity],
    ];
    expect(rows.map(([x, y]) => power(x, y))).toEqual(rows.map(([, , due]) => due));
  });

  test("odd functions are odd, and x^1, x^2 and x^(1/2) are the operations", () => {
    const next = words(21);
    for (let k = 0; k < 300; k++) {
      const x = f32OfBits(next());
      for (const name of ["tanh", "erf", "sin"] as const) {
        expect(hex(elementary(name, -x))).toBe(hex(-elementary(name, x)));
      }
      expect(hex(power(x, 1))).toBe(hex(x));
      expect(hex(power(x, 2))).toBe(hex(Math.fround(x * x)));
      expect(hex(power(x, -1))).toBe(hex(Math.fround(1 / x)));
      if (Math.abs(x) > 0 && Math.abs(x) < Infinity) {
        expect(hex(power(x, 0.5))).toBe(hex(Math.fround(Math.sqrt(x))));
        expect(hex(power(x, -0.5))).toBe(hex(elementary("rsqrt", x)));
      }
    }
  });
});

import { describe, expect, test } from "vitest";
import { add32, div32, fma32, max, min, mul32, sqrt32 } from "../../src/numbers/binary32.ts";
import {
  bitsOf,
  bitsOfF32,
  bitsOfF64,
  f32OfBits,
  f64OfBits,
  numberOf,
} from "../../src/numbers/bits.ts";
import { squareRoot } from "../../src/numbers/enclosure.ts";
import { philox } from "../../src/numbers/philox.ts";
import { exactly, roundToF32, roundToF64, roundToGrid } from "../../src/numbers/rounding.ts";
import { floorDiv, floorMod, shiftLeft, shiftRight } from "../../src/numbers/whole.ts";
import { words } from "../vectors.ts";

const SPECIAL = [
  0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000, 0x3f800001,
  0x33800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000,
].map(f32OfBits);

/** a·b + c by whole numbers, where all are finite and the sum is not 0. */
function exactFma(a: number, b: number, c: number): number {
  const [x, y, z] = [exactly(a), exactly(b), exactly(c)];
  const q = Math.min(x.q + y.q, z.q);
  const sum = ((x.n * y.n) << BigInt(x.q + y.q - q)) + (z.n << BigInt(z.q - q));
  return sum === 0n ? a * b + c : roundToF32(sum, q);
}

/** Numbers of all magnitudes, and such as are near each other. */
function* triples(count: number): Generator<[number, number, number]> {
  for (const a of SPECIAL) for (const b of SPECIAL) for (const c of SPECIAL) yield [a, b, c];
  const next = words(7);
  for (let k = 0; k < count; k++) {
    const [a, b] = [f32OfBits(next()), f32OfBits(next())];
    yield [a, b, f32OfBits(next())];
    yield [a, b, Math.fround(-a * b)];
    yield [a, b, f32OfBits((bitsOfF32(Math.fround(a * b)) ^ (next() & 0x0c000007)) >>> 0)];
  }
}

describe("binary32 (NUMERICS 1)", () => {
  test("fma is one rounding of the exact number", () => {
    for (const [a, b, c] of triples(20000)) {
      const want = [a, b, c].every(Number.isFinite) ? exactFma(a, b, c) : a * b + c;
      const found = fma32(a, b, c);
      if (!Object.is(found, want)) expect([a, b, c, found]).toEqual([a, b, c, want]);
    }
  });

  test("fma of a sum whose last binary64 digit is 1 already", () => {
    // 1 + 2^−24 + 2^−52 − 2^−76. One place down in binary64 would be a tie of binary32.
    expect(fma32(673 * 2 ** -12, 24929 * 2 ** -12, 2 ** -52 - 2 ** -76)).toBe(1 + 2 ** -23);
  });

  test("+, ·, / and √ are one rounding of the exact result", () => {
    const next = words(8);
    for (let k = 0; k < 20000; k++) {
      // Exponents near each other, near the subnormal numbers, and any.
      const mask = [0x807fffff, 0x81ffffff, 0xffffffff][k % 3] ?? 0;
      const [a, b] = [f32OfBits((next() & mask) >>> 0), f32OfBits((next() & mask) >>> 0)];
      if (!Number.isFinite(a) || !Number.isFinite(b) || a === 0 || b === 0) continue;
      const [x, y] = [exactly(a), exactly(b)];
      expect(Object.is(mul32(a, b), roundToF32(x.n * y.n, x.q + y.q))).toBe(true);
      expect(Object.is(add32(a, b), exactFma(a, 1, b))).toBe(true);
      const sign = x.n < 0n !== y.n < 0n ? -1 : 1;
      const [n, d] = [x.n < 0n ? -x.n : x.n, y.n < 0n ? -y.n : y.n];
      const quotient = (n << 160n) / d;
      const sticky = (n << 160n) % d === 0n ? 0n : 1n;
      const ratio = roundToF32(2n * quotient + sticky, x.q - y.q - 161);
      expect(Object.is(div32(a, b), sign * ratio)).toBe(true);
      const scaled = n << BigInt(160 + (Math.abs(x.q) % 2));
      const root = squareRoot(scaled);
      const rest = root * root === scaled ? 0n : 1n;
      const q = (x.q - 160 - (Math.abs(x.q) % 2)) / 2 - 1;
      expect(Object.is(sqrt32(Math.abs(a)), roundToF32(2n * root + rest, q))).toBe(true);
    }
  });

  test("rounding of exact numbers agrees with the language's own", () => {
    const next = words(9);
    for (let k = 0; k < 20000; k++) {
      const x = f64OfBits((BigInt(next()) << 32n) | BigInt(next()));
      const near = x * 2 ** -Math.round(Math.log2(Math.abs(x)) * (k % 2));
      if (!Number.isFinite(near) || near === 0) continue;
      const { n, q } = exactly(near);
      expect(Object.is(roundToF64(n, q), near)).toBe(true);
      expect(Object.is(roundToF32(n, q), Math.fround(near))).toBe(true);
      const whole = BigInt.asIntN(64, (BigInt(next()) << 32n) | BigInt(next()));
      expect(roundToF64(whole, 0)).toBe(Number(whole));
    }
  });

  test("no digits at all are +0 at every scale", () => {
    expect([300, 0, -2000].map((q) => roundToF32(0n, q))).toEqual([0, 0, 0]);
    expect([300, 0, -2000].map((q) => roundToF64(0n, q))).toEqual([0, 0, 0]);
  });

  test.each([22, 27, 32])("R of %d bits: zeros are +0, what is large is infinite (13.2)", (B) => {
    const least = -149 + 32 - B;
    const rows: [n: bigint, q: number, due: number][] = [
      [0n, 0, 0],
      [0n, 300, 0],
      [1n, -400, 0],
      [-1n, -400, 0],
      [-1n, least - 1, 0],
      [-3n, least - 1, -(2 ** (least + 1))],
      [-1n, least, -(2 ** least)],
      [1n, 128, Infinity],
      [-1n, 128, -Infinity],
      [-1n, 127, -(2 ** 127)],
    ];
    expect(rows.map(([n, q]) => roundToGrid(n, q, B))).toEqual(rows.map(([, , due]) => due));
  });

  test("max and min know NaN and the zeros' signs (1.11)", () => {
    expect(Object.is(max(-0, 0), 0) && Object.is(max(0, -0), 0)).toBe(true);
    expect(Object.is(min(-0, 0), -0) && Object.is(min(0, -0), -0)).toBe(true);
    expect(Object.is(max(-0, -0), -0)).toBe(true);
    expect(max(NaN, 1)).toBeNaN();
    expect(min(1, NaN)).toBeNaN();
    expect(max(-Infinity, -1)).toBe(-1);
    expect(min(-Infinity, -1)).toBe(-Infinity);
  });

  test("bits and numbers", () => {
    expect(bitsOf("f32", NaN)).toBe(0x7fc00000n);
    expect(bitsOf("f64", NaN)).toBe(0x7ff8000000000000n);
    expect(bitsOf("f64", -0)).toBe(1n << 63n);
    expect(numberOf("i64", (1n << 64n) - 3n)).toBe(-3n);
    expect(numberOf("i32", 0xfffffffdn)).toBe(-3);
    expect(bitsOf("i32", -3)).toBe(0xfffffffdn);
    expect(bitsOf("u8", 255)).toBe(255n);
    expect(bitsOf("bool", 1)).toBe(1n);
    expect(numberOf("f32", 0xff812345n)).toBeNaN();
    for (const bits of [0xfff8000000000123n, 0x7ff0000000000001n, 0xffffffffffffffffn]) {
      expect(bitsOfF64(f64OfBits(bits))).toBe(0x7ff8000000000000n);
    }
  });
});

describe("whole numbers", () => {
  test("square roots round down", () => {
    const roots = Array.from({ length: 40 }, (_, n) => squareRoot(BigInt(n)));
    expect(roots).toEqual(roots.map((_, n) => BigInt(Math.floor(Math.sqrt(n)))));
  });

  test("quotients round down", () => {
    for (const a of [-7n, -6n, -1n, 0n, 1n, 6n, 7n]) {
      for (const b of [-3n, -1n, 1n, 3n]) {
        expect(floorDiv(a, b)).toBe(BigInt(Math.floor(Number(a) / Number(b))));
        expect(floorDiv(a, b) * b + floorMod(a, b)).toBe(a);
      }
    }
  });

  test("shifts of i64 (10.11)", () => {
    expect(shiftLeft(3n, 63n)).toBe(-(1n << 63n));
    expect(shiftLeft(3n, 64n)).toBe(0n);
    expect(shiftRight(-5n, 1n)).toBe(-3n);
    expect(shiftRight(-5n, -1n)).toBe(-1n);
    expect(shiftRight(5n, 64n)).toBe(0n);
  });

  test("Philox gives the words of its authors", () => {
    const all = 0xffffffff;
    expect(philox([0, 0, 0, 0], [0, 0])).toEqual([0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
    expect(philox([all, all, all, all], [all, all])).toEqual([
      0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd,
    ]);
  });
});

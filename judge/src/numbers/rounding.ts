/** RN32 and RN64 of exact numbers (NUMERICS 1.2), and the exact numbers that floats are. */
import { bitsOfF64, f32OfBits, f64OfBits } from "./bits.ts";

/** The real number n·2^q. */
export interface Dyadic {
  readonly n: bigint;
  readonly q: number;
}

/** The number of binary digits of a whole number that is not negative; 0 of 0. */
export function bitLength(n: bigint): number {
  const hex = n.toString(16);
  return 4 * (hex.length - 1) + (32 - Math.clz32(parseInt(hex.charAt(0), 16)));
}

/** The exact number that a finite float is (every binary32 number is a binary64 one). */
export function exactly(x: number): Dyadic {
  const bits = bitsOfF64(Math.abs(x));
  const field = Number(bits >> 52n);
  const fraction = bits & 0xfffffffffffffn;
  const magnitude = field === 0 ? fraction : fraction | 0x10000000000000n;
  return { n: x < 0 ? -magnitude : magnitude, q: Math.max(field, 1) - 1075 };
}

/** ⌊n / 2^shift⌋ rounded to the nearest whole number instead, ties to even; n is not negative. */
export function shiftToEven(n: bigint, shift: number): bigint {
  if (shift <= 0) return n << BigInt(-shift);
  const width = BigInt(shift);
  const quotient = n >> width;
  const twice = (n - (quotient << width)) << 1n;
  const unit = 1n << width;
  const up = twice > unit || (twice === unit && (quotient & 1n) === 1n);
  return up ? quotient + 1n : quotient;
}

/**
 * The bits of the nearest number of a format, without the sign: `precision` digits, units of at
 * least 2^lowest. A carry of the digits runs into the exponent, as it should.
 */
function magnitudeBits(n: bigint, q: number, precision: number, lowest: number): bigint {
  const unit = Math.max(q + bitLength(n) - precision, lowest);
  return (BigInt(unit - lowest) << BigInt(precision - 1)) + shiftToEven(n, unit - q);
}

/** RN32(n·2^q); the zero of n = 0 is +0, and what underflows keeps its sign. */
export function roundToF32(n: bigint, q: number): number {
  if (n === 0n) return 0;
  const bits = magnitudeBits(n < 0n ? -n : n, q, 24, -149);
  const magnitude = bits >= 0x7f800000n ? Infinity : f32OfBits(Number(bits));
  return n < 0n ? -magnitude : magnitude;
}

/** RN64(n·2^q), likewise. */
export function roundToF64(n: bigint, q: number): number {
  if (n === 0n) return 0;
  const bits = magnitudeBits(n < 0n ? -n : n, q, 53, -1074);
  const magnitude = bits >= 0x7ff0000000000000n ? Infinity : f64OfBits(bits);
  return n < 0n ? -magnitude : magnitude;
}

/**
 * R(n·2^q) of NUMERICS 13.2: the nearest of those binary32 numbers whose lowest 32 − B bits are
 * zero, with the overflow and the ties of RN32 on what is kept. A zero is +0.
 */
export function roundToGrid(n: bigint, q: number, B: number): number {
  if (n === 0n) return 0;
  const dropped = 32 - B;
  const kept = magnitudeBits(n < 0n ? -n : n, q, 24 - dropped, -149 + dropped);
  const bits = kept << BigInt(dropped);
  const magnitude = bits >= 0x7f800000n ? Infinity : f32OfBits(Number(bits));
  return n < 0n && magnitude !== 0 ? -magnitude : magnitude;
}

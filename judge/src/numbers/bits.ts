/**
 * The dtypes of NUMERICS 1.1 and their bits (OPENING 1.3).
 *
 * A value has two forms. As *bits* it is an unsigned whole number, its little-endian bytes read as
 * one: two values are equal if their bits are (OPENING 1.5), and a NaN keeps its payload. As a
 * *number* it is what arithmetic works on: f32 and f64 a number, i64 a bigint, i32, u8 and bool a
 * number. Of bf16 and f16 nothing is made, so that a number never becomes their bits (1.14).
 */
export type Dtype = "f32" | "f64" | "i64" | "i32" | "u8" | "bool" | Stored;

/** What weights may be stored as (NUMERICS 1.14). */
export type Stored = "bf16" | "f16";

export const isStored = (dtype: string): dtype is Stored => dtype === "bf16" || dtype === "f16";

/** Bits of a value: an unsigned whole number of as many bits as its dtype has. */
export type Bits = bigint;

/** A value that arithmetic works on: a bigint of i64 (and of whole numbers), else a number. */
export type Scalar = number | bigint;

/** Bytes of an element (NUMERICS 1.1, OPENING 1.3). */
export const WIDTH: Readonly<Record<Dtype, number>> = {
  f32: 4,
  f64: 8,
  i64: 8,
  i32: 4,
  u8: 1,
  bool: 1,
  bf16: 2,
  f16: 2,
};

/** The one NaN of each width (NUMERICS 1.5). */
const NAN32 = 0x7fc00000n;
const NAN64 = 0x7ff8000000000000n;

const view = new DataView(new ArrayBuffer(8));

/** The bits of a binary32 number, the NaN being the canonical one. */
export function bitsOfF32(x: number): number {
  if (Number.isNaN(x)) return Number(NAN32);
  view.setFloat32(0, x);
  return view.getUint32(0);
}

/** The binary32 number of these bits. */
export function f32OfBits(bits: number): number {
  view.setUint32(0, bits);
  return view.getFloat32(0);
}

/** The bits of a binary64 number, the NaN being the canonical one. */
export function bitsOfF64(x: number): bigint {
  if (Number.isNaN(x)) return NAN64;
  view.setFloat64(0, x);
  return view.getBigUint64(0);
}

/** The binary64 number of these bits. */
export function f64OfBits(bits: bigint): number {
  view.setBigUint64(0, bits);
  return view.getFloat64(0);
}

/** The number of IEEE-754 binary16 of these bits. */
function f16OfBits(bits: number): number {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size =
    exponent === 31
      ? fraction === 0
        ? Infinity
        : NaN
      : exponent === 0
        ? fraction * 2 ** -24
        : (1024 + fraction) * 2 ** (exponent - 25);
  return bits >> 15 === 0 ? size : -size;
}

/** The number that these bits are. A bool is 1 if any bit is set. */
export function numberOf(dtype: Dtype, bits: Bits): Scalar {
  switch (dtype) {
    case "f32":
      return f32OfBits(Number(bits));
    case "f64":
      return f64OfBits(bits);
    case "i64":
      return BigInt.asIntN(64, bits);
    case "i32":
      return Number(BigInt.asIntN(32, bits));
    case "u8":
      return Number(bits);
    case "bool":
      return bits === 0n ? 0 : 1;
    case "bf16":
      return f32OfBits(Number(bits << 16n));
    case "f16":
      return f16OfBits(Number(bits));
  }
}

/** The bits of a number, with the canonical NaN (NUMERICS 1.5) and integers modulo their width. */
export function bitsOf(dtype: Dtype, value: Scalar): Bits {
  switch (dtype) {
    case "f32":
      return BigInt(bitsOfF32(Number(value)));
    case "f64":
      return bitsOfF64(Number(value));
    case "i64":
      return BigInt.asUintN(64, BigInt(value));
    case "i32":
      return BigInt.asUintN(32, BigInt(value));
    case "u8":
      return BigInt.asUintN(8, BigInt(value));
    case "bool":
      return BigInt(value) === 0n ? 0n : 1n;
    case "bf16":
    case "f16":
      throw new Error(`no number becomes ${dtype}`);
  }
}

/** Values of quantities as kind 10 states them (OPENING 1.3, 1.4), and as a verdict shows them. */
import { WIDTH, type Bits } from "../numbers/bits.ts";
import type { QuantityDtype } from "../operators/index.ts";
import type { Reader } from "../reader.ts";

/** Bytes of a value (OPENING 1.3). */
const WIDTHS: Readonly<Record<QuantityDtype, number>> = {
  ...WIDTH,
  acc: 80,
  real: 16,
  blk: 24,
};

/** The bits of little-endian bytes. */
export function bitsOfBytes(bytes: Uint8Array): Bits {
  let bits = 0n;
  for (const byte of Uint8Array.from(bytes).reverse()) bits = (bits << 8n) | BigInt(byte);
  return bits;
}

/** Little-endian bytes of bits of a dtype. */
export function bytesOfBits(dtype: QuantityDtype, bits: Bits): Uint8Array {
  return Uint8Array.from({ length: WIDTHS[dtype] }, (_, k) =>
    Number((bits >> BigInt(8 * k)) & 0xffn),
  );
}

/** Reads values of these dtypes, one after the other. */
export const valuesOf =
  (dtypes: readonly QuantityDtype[]) =>
  (reader: Reader): Bits[] =>
    dtypes.map((dtype) => bitsOfBytes(reader.take(WIDTHS[dtype])));

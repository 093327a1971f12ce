/** Whole numbers: i64 modulo 2^64 (NUMERICS 10.8, 10.10, 10.11) and quotients rounded down. */

/** The number of i64 that is n modulo 2^64. */
export const wrap64 = (n: bigint): bigint => BigInt.asIntN(64, n);

/** ⌊a / b⌋, b not 0 (OPENING 1.9). */
export function floorDiv(a: bigint, b: bigint): bigint {
  const quotient = a / b;
  return a % b !== 0n && a < 0n !== b < 0n ? quotient - 1n : quotient;
}

/** a − b·⌊a / b⌋, b not 0 (OPENING 1.9). */
export const floorMod = (a: bigint, b: bigint): bigint => a - b * floorDiv(a, b);

/** a·2^b modulo 2^64 for 0 ≤ b ≤ 63, else 0 (NUMERICS 10.11). */
export const shiftLeft = (a: bigint, b: bigint): bigint =>
  b >= 0n && b <= 63n ? wrap64(a << b) : 0n;

/** ⌊a / 2^b⌋ for b ≥ 0, of which 63 bits leave the sign alone; else that too (NUMERICS 10.11). */
export const shiftRight = (a: bigint, b: bigint): bigint => a >> (b >= 0n ? b : 63n);

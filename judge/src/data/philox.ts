/** Philox4x32-10 (NUMERICS 8.1; Salmon et al. 2011): here for the order of records. */

export type Words4 = readonly [number, number, number, number];

/** The high and the low word of a product of two u32. */
function product(a: number, b: number): [number, number] {
  const [ah, al, bh, bl] = [a >>> 16, a & 0xffff, b >>> 16, b & 0xffff];
  const low = al * bl;
  const middle = ah * bl + (low >>> 16);
  const middle2 = al * bh + (middle % 0x10000);
  const high = ah * bh + Math.floor(middle / 0x10000) + Math.floor(middle2 / 0x10000);
  return [high >>> 0, Math.imul(a, b) >>> 0];
}

/** Ten rounds; the key goes on by the Weyl constants. */
export function philox4x32(counter: Words4, key: readonly [number, number]): Words4 {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round++) {
    const [high0, low0] = product(0xd2511f53, c0);
    const [high1, low1] = product(0xcd9e8d57, c2);
    [c0, c1, c2, c3] = [(high1 ^ c1 ^ k0) >>> 0, low1, (high0 ^ c3 ^ k1) >>> 0, low0];
    [k0, k1] = [(k0 + 0x9e3779b9) >>> 0, (k1 + 0xbb67ae85) >>> 0];
  }
  return [c0, c1, c2, c3];
}

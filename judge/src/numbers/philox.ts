/** Philox4x32-10 (NUMERICS 8.1; Salmon et al. 2011): of random draws, and of the order of records. */

/** Four words, each an unsigned number of 32 bits. */
export type Words = readonly [number, number, number, number];

/** The high and the low word of a product of two u32. */
function product(a: number, b: number): [number, number] {
  const [ah, al, bh, bl] = [a >>> 16, a & 0xffff, b >>> 16, b & 0xffff];
  const low = al * bl;
  const middle = ah * bl + (low >>> 16);
  const middle2 = al * bh + (middle % 0x10000);
  const high = ah * bh + Math.floor(middle / 0x10000) + Math.floor(middle2 / 0x10000);
  return [high >>> 0, Math.imul(a, b) >>> 0];
}

/** The output words of a counter under a key of two words. */
export function philox(counter: Words, key: readonly [number, number]): Words {
  let [a, b, c, d] = counter;
  let [k, l] = key;
  for (let round = 0; round < 10; round++) {
    const [high0, low0] = product(0xd2511f53, a);
    const [high1, low1] = product(0xcd9e8d57, c);
    [a, b, c, d] = [(high1 ^ b ^ k) >>> 0, low1, (high0 ^ d ^ l) >>> 0, low0];
    [k, l] = [(k + 0x9e3779b9) >>> 0, (l + 0xbb67ae85) >>> 0];
  }
  return [a, b, c, d];
}

const wordOf = (value: bigint, at: bigint): number => Number(BigInt.asUintN(32, value >> at));

/** Word `number` of block `block` (below 2^64) of a draw, for the seed and the step (8.1, 8.3). */
export function randomWord(
  seed: bigint,
  step: bigint,
  draw: bigint,
  block: bigint,
  number: bigint,
): bigint {
  const counter = [wordOf(block, 0n), wordOf(block, 32n), Number(draw), Number(step)] as const;
  const word = philox(counter, [wordOf(seed, 0n), wordOf(seed, 32n)])[Number(number)];
  if (word === undefined) throw new Error(`no word ${number.toString()}`);
  return BigInt(word);
}

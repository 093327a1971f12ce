/** Philox4x32-10 (NUMERICS 8.1). */

const MASK = 0xffffffffn;
const low = (n: bigint): bigint => n & MASK;

/** Four words, each an unsigned number of 32 bits. */
export type Words = readonly [bigint, bigint, bigint, bigint];

/** The output words of a counter under a key of two words. */
export function philox(counter: Words, key: readonly [bigint, bigint]): Words {
  let [a, b, c, d] = counter;
  let [k, l] = key;
  for (let round = 0; round < 10; round++) {
    const first = 0xd2511f53n * a;
    const second = 0xcd9e8d57n * c;
    [a, b, c, d] = [(second >> 32n) ^ b ^ k, low(second), (first >> 32n) ^ d ^ l, low(first)];
    k = low(k + 0x9e3779b9n);
    l = low(l + 0xbb67ae85n);
  }
  return [a, b, c, d];
}

/** Word `number` of block `block` (below 2^64) of a draw, for the seed and the step (8.1, 8.3). */
export function randomWord(
  seed: bigint,
  step: bigint,
  draw: bigint,
  block: bigint,
  number: bigint,
): bigint {
  const words = philox([low(block), low(block >> 32n), draw, step], [low(seed), seed >> 32n]);
  const word = words[Number(number)];
  if (word === undefined) throw new Error(`no word ${number.toString()}`);
  return word;
}

/** The order in which a run reads records (COMMITMENTS 8.4). */

import { refuse } from "../errors.ts";
import { Writer } from "../writer.ts";
import { philox } from "../numbers/philox.ts";

/** The key of an order seed (8.4.1). */
function orderKey(seed: bigint): [number, number] {
  const digest = Writer.tagged("order/1").u64(seed).digest();
  const view = new DataView(digest.buffer, digest.byteOffset);
  return [view.getUint32(0, true), view.getUint32(4, true)];
}

/** The sides of 8.4.2: a = ⌈√N⌉, b = ⌈N/a⌉. N is at most 2⁴⁰, so ⌊√N⌋ is exact. */
function sides(count: number): [number, number] {
  const root = Math.floor(Math.sqrt(count));
  const a = root * root < count ? root + 1 : root;
  return [a, Math.ceil(count / a)];
}

/** (value + w0 + 2³²·w1) mod side, in numbers below 2⁵³: a side is at most 2²⁰. */
function moved(value: number, w0: number, w1: number, side: number): number {
  return (value + (w0 % side) + (w1 % side) * (2 ** 32 % side)) % side;
}

/** A permutation of N records in each epoch (8.4.3, 8.4.4). */
export class Order {
  readonly #key: [number, number];
  readonly #count: number;
  readonly #sides: [number, number];

  constructor(seed: bigint, count: number) {
    if (count < 1) throw refuse("an order of no records");
    this.#key = orderKey(seed);
    this.#count = count;
    this.#sides = sides(count);
  }

  #pass(x: number, epoch: bigint): number {
    const [a, b] = this.#sides;
    const [low, high] = [Number(epoch & 0xffffffffn), Number(epoch >> 32n)];
    let [left, right] = [Math.floor(x / b), x % b];
    for (let r = 0; r < 16; r++) {
      const [w0, w1] = philox([r % 2 === 0 ? right : left, r, low, high], this.#key);
      if (r % 2 === 0) left = moved(left, w0, w1, a);
      else right = moved(right, w0, w1, b);
    }
    return left * b + right;
  }

  /** π(e, q): the record at place q of epoch e (8.4.4). */
  at(epoch: bigint, place: number): number {
    let x = place;
    do x = this.#pass(x, epoch);
    while (x >= this.#count);
    return x;
  }
}

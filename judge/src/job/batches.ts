/** Which records the batches of a stream have (COMMITMENTS 7.6.4, 7.7.4, 8.4). */
import { Order } from "../data/order.ts";
import { refuse } from "../errors.ts";
import type { JobData, JobStream } from "./job.ts";

export class Batches {
  readonly #stream: JobStream;
  readonly #data: JobData | null;
  #order: Order | null = null;

  /** `data` is the stream's set, null where it has none. */
  constructor(stream: JobStream, data: JobData | null) {
    this.#stream = stream;
    this.#data = data;
  }

  /** B, the batches of an epoch; null where L is 0. */
  get ofEpoch(): number | null {
    const { epochRecords, batchSize } = this.#stream;
    return epochRecords === 0 ? null : Math.ceil(epochRecords / batchSize);
  }

  /** r, the size of the last batch of an epoch. */
  get lastSize(): number {
    const { epochRecords, batchSize } = this.#stream;
    return this.ofEpoch === null ? batchSize : epochRecords - (this.ofEpoch - 1) * batchSize;
  }

  /** The most steps that a pass may have; null where the stream has no data set. */
  get ofPass(): number | null {
    if (this.#data === null) return null;
    return this.ofEpoch ?? Math.floor(this.#data.records / this.#stream.batchSize);
  }

  /** How many of `count` batches from j on are the last one of an epoch. */
  lastOnes(j: number, count: number): number {
    const B = this.ofEpoch;
    return B === null ? 0 : Math.floor((j + count) / B) - Math.floor(j / B);
  }

  /** The size s of batch j. */
  size(j: number): number {
    return this.lastOnes(j, 1) === 1 ? this.lastSize : this.#stream.batchSize;
  }

  /** The record at place i of batch j. */
  record(j: number, i: number): number {
    if (this.#data === null) throw refuse("a record of a program that reads no data");
    if (!Number.isSafeInteger(i) || i < 0 || i >= this.size(j)) throw refuse("no place of a batch");
    const { records, isSequential, orderSeed } = this.#data;
    if (records === 0) throw refuse("a batch of no records");
    const [epoch, place] = this.#place(j, i, records);
    if (isSequential || this.#stream.byPass) return place;
    this.#order ??= new Order(orderSeed, records);
    return this.#order.at(epoch, place);
  }

  /** e and q of 7.7.4. Where L is 0 the place p + i may pass 2⁵³. */
  #place(j: number, i: number, records: number): [bigint, number] {
    const B = this.ofEpoch;
    const { batchSize } = this.#stream;
    if (B !== null) return [BigInt(Math.floor(j / B)), (j % B) * batchSize + i];
    const place = BigInt(j) * BigInt(batchSize) + BigInt(i);
    return [place / BigInt(records), Number(place % BigInt(records))];
  }
}

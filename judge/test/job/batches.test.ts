/** The record at a place of a batch (COMMITMENTS 7.6.4, 7.7.4), and places that there are not. */
import { expect, test } from "vitest";

import { Order } from "../../src/data/order.ts";
import { Batches } from "../../src/job/batches.ts";
import type { JobData, JobStream } from "../../src/job/job.ts";
import { orRefused } from "../program/cases.ts";

const DATA: JobData = {
  name: "set",
  root: new Uint8Array(32),
  records: 7,
  orderSeed: 5n,
  isSequential: true,
};
const STREAM: JobStream = {
  name: "s",
  data: 0,
  batchSize: 3,
  byPass: false,
  epochRecords: 0,
  first: 0,
};

test("epochs of L records: the last batch is short", () => {
  const batches = new Batches({ ...STREAM, epochRecords: 5 }, DATA);
  expect([0, 1, 2].map((j) => batches.size(j))).toEqual([3, 2, 3]);
  const read = [0, 1, 2].map((j) =>
    [-1, 0, 1, 2, 3].map((i) => orRefused(() => batches.record(j, i))),
  );
  expect(read).toEqual([
    ["refused", 0, 1, 2, "refused"],
    ["refused", 3, 4, "refused", "refused"],
    ["refused", 0, 1, 2, "refused"],
  ]);
  for (const i of [0.5, NaN]) expect(orRefused(() => batches.record(0, i))).toBe("refused");
});

test("without epochs: batches go round the records", () => {
  const batches = new Batches(STREAM, DATA);
  const read = [0, 1, 2].map((j) => [0, 1, 2].map((i) => batches.record(j, i)));
  expect(read).toEqual([
    [0, 1, 2],
    [3, 4, 5],
    [6, 0, 1],
  ]);
  expect(orRefused(() => batches.record(0, 3))).toBe("refused");
  expect(orRefused(() => new Batches(STREAM, null).record(0, 0))).toBe("refused");
  expect(orRefused(() => new Batches(STREAM, { ...DATA, records: 0 }).record(0, 0))).toBe(
    "refused",
  );
});

test("an order has every record once in each epoch, whatever their number", () => {
  expect(orRefused(() => new Order(5n, 0))).toBe("refused");
  const numbers = (count: number): number[] => Array.from({ length: count }, (_, k) => k);
  for (let count = 1; count <= 50; count++) {
    const order = new Order(5n, count);
    for (const epoch of [0n, 1n, 2n ** 33n]) {
      const read = numbers(count).map((place) => order.at(epoch, place));
      expect(read.sort((a, b) => a - b)).toEqual(numbers(count));
    }
  }
});

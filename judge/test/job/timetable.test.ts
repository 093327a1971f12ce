/** Timetables and sizes of batches against loops that count step by step. */
import { describe, expect, test } from "vitest";

import { at, type Job, type JobStream } from "../../src/job/job.ts";
import { batchesOf, checkPlan } from "../../src/job/plan.ts";
import { Timetable } from "../../src/job/timetable.ts";
import { orRefused } from "../program/cases.ts";
import { words } from "../vectors.ts";

const RECORDS = 12;
const DIGEST = new Uint8Array(32);

type Next = (below: number) => number;

const nextOf = (seed: number): Next => {
  const word = words(seed);
  return (below) => word() % below;
};

function jobOf(parts: Pick<Job, "streams" | "programs" | "turns" | "steps">): Job {
  return {
    format: 3,
    contract: "ordered/1-draft.1",
    genesisRoot: DIGEST,
    data: [{ name: "set", root: DIGEST, records: RECORDS, orderSeed: 5n, isSequential: true }],
    rngSeed: 7n,
    checkpointInterval: 1,
    scalarsDigest: DIGEST,
    stopsOnNonFinite: true,
    stopsOnSlot: false,
    continues: DIGEST,
    ...parts,
  };
}

/** A job of up to three streams of up to three programs each, with any turns. */
function randomJob(next: Next): Job {
  const count = 1 + next(3);
  const streams = Array.from({ length: count }, (_, k): JobStream => {
    const byPass = next(2) === 0;
    const first = byPass ? 0 : next(9);
    const batchSize = 1 + next(4);
    return { name: `s${k}`, data: 0, batchSize, byPass, epochRecords: next(RECORDS + 1), first };
  });
  const owners = streams.flatMap((_, stream) => Array.from({ length: 1 + next(3) }, () => stream));
  const batches = batchesOf(jobOf({ streams, programs: [], turns: [], steps: 0 }));
  const programs = owners.map((stream, k) => {
    const sizes = [at(streams, stream).batchSize, at(batches, stream).lastSize];
    const batchSize = at(sizes, next(2));
    return { name: `p${k}`, digest: DIGEST, stream, batchSize, microBatches: 1 };
  });
  const turns = [
    ...Array.from({ length: next(5) }, () => ({
      program: next(programs.length),
      steps: 1 + next(3),
    })),
    ...programs.map((_, program) => ({ program, steps: 1 + next(3) })),
  ];
  return jobOf({ streams, programs, turns, steps: next(70) });
}

interface Place {
  readonly program: number;
  readonly stream: number;
  readonly batchNumber: number;
}

/** The steps of a run, counted one by one (COMMITMENTS 7.7.3). */
function counted({ streams, programs, turns }: Job, steps: number): Place[] {
  const places: Place[] = [];
  const executed = streams.map(({ first }) => first);
  for (;;) {
    let [pass, before] = [0, -1];
    for (const { program, steps: ofTurn } of turns) {
      const { stream } = at(programs, program);
      const isSamePass =
        before >= 0 && before !== program && at(programs, before).stream === stream;
      if (!isSamePass) pass = 0;
      before = program;
      for (let k = 0; k < ofTurn; k++) {
        if (places.length === steps) return places;
        const total = at(executed, stream);
        const batchNumber = at(streams, stream).byPass ? pass : total;
        places.push({ program, stream, batchNumber });
        pass++;
        executed[stream] = total + 1;
      }
    }
  }
}

test("each step has the place that counting gives, and tables have a row for each batch", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const job = randomJob(nextOf(seed));
    const timetable = new Timetable(job);
    const steps = Math.max(job.steps, 3 * timetable.cycle);
    const places = counted(job, steps);
    expect(places.map((_, t) => timetable.at(t))).toEqual(places);
    for (const [stream, { byPass }] of job.streams.entries()) {
      const seen = byPass ? counted(job, timetable.cycle) : places.slice(0, job.steps);
      const own = seen.filter((place) => place.stream === stream);
      const rows = byPass ? Math.max(...own.map(({ batchNumber }) => batchNumber + 1)) : own.length;
      expect(timetable.rows(stream)).toBe(rows);
    }
  }
});

test("a step far behind has the place that whole cycles before it leave", () => {
  for (let seed = 1; seed <= 100; seed++) {
    const job = { ...randomJob(nextOf(seed)), steps: 2 ** 40 };
    const timetable = new Timetable(job);
    const cycles = Math.floor(2 ** 40 / timetable.cycle) - 1;
    for (const [k, place] of counted(job, timetable.cycle).entries()) {
      const skipped = at(job.streams, place.stream).byPass
        ? 0
        : cycles * timetable.stepsOfCycle(place.stream);
      const batchNumber = place.batchNumber + skipped;
      expect(timetable.at(cycles * timetable.cycle + k)).toEqual({ ...place, batchNumber });
    }
  }
});

/** The size of batch j, from the records that it has (COMMITMENTS 7.7.4). */
function sizeOf({ epochRecords: L, batchSize: b }: JobStream, j: number): number {
  if (L === 0) return b;
  return Math.min(b, L - (j % Math.ceil(L / b)) * b);
}

/** 7.7.4 and 7.7.5, step by step. */
function isPlan(job: Job, timetable: Timetable): boolean {
  const cycle = counted(job, timetable.cycle);
  return cycle.every(({ program, stream, batchNumber }, t) => {
    const own = at(job.streams, stream);
    const { epochRecords: L, batchSize: b, byPass } = own;
    const B = L === 0 ? Math.floor(RECORDS / b) : Math.ceil(L / b);
    if (byPass && batchNumber >= B) return false;
    const isWhole = timetable.stepsOfCycle(stream) % B === 0 || job.steps <= timetable.cycle;
    if (!byPass && L % b !== 0 && !isWhole) return false;
    const isLooked = byPass || t < job.steps;
    return !isLooked || at(job.programs, program).batchSize === sizeOf(own, batchNumber);
  });
}

describe("sizes of batches", () => {
  const plans = Array.from({ length: 4000 }, (_, seed) => {
    const job = randomJob(nextOf(seed + 1));
    const timetable = new Timetable(job);
    const checked = orRefused(() => {
      checkPlan(job, timetable, batchesOf(job));
      return "taken";
    });
    return { job, timetable, checked };
  });

  test("a plan is refused where a step of it is none", () => {
    const taken = plans.filter(({ checked }) => checked === "taken");
    expect(taken.length).toBeGreaterThan(100);
    const isShort = ({ job }: (typeof plans)[number]): boolean =>
      batchesOf(job).some(({ lastSize }, k) => lastSize < at(job.streams, k).batchSize);
    expect(taken.filter(isShort).length).toBeGreaterThan(50);
    expect(taken.filter(({ job, timetable }) => !isPlan(job, timetable))).toEqual([]);
    const refused = plans.filter(({ checked }) => checked === "refused");
    expect(refused.filter(({ job, timetable }) => isPlan(job, timetable))).toEqual([]);
  });

  test("every step of a plan executes a program of its batch's size", () => {
    for (const { job, checked } of plans) {
      if (checked === "refused") continue;
      for (const { program, stream, batchNumber } of counted(job, job.steps)) {
        const size = sizeOf(at(job.streams, stream), batchNumber);
        expect(at(job.programs, program).batchSize).toBe(size);
      }
    }
  });
});

describe("parts of a job of format 3, by hand", () => {
  const stream: JobStream = {
    name: "a",
    data: 0,
    batchSize: 2,
    byPass: false,
    epochRecords: 0,
    first: 0,
  };
  const program = { name: "a", digest: DIGEST, stream: 0, batchSize: 2, microBatches: 1 };
  const isTaken = (change: Partial<Job>): boolean => {
    const turns = [{ program: 0, steps: 1 }];
    const job = {
      ...jobOf({ streams: [stream], programs: [program], turns, steps: 3 }),
      ...change,
    };
    const checked = orRefused(() => {
      checkPlan(job, new Timetable(job), batchesOf(job));
    });
    return checked !== "refused";
  };
  const turns = [
    { program: 0, steps: 1 },
    { program: 1, steps: 1 },
  ];

  test("a program has a batch size of its stream (7.7.5)", () => {
    expect(isTaken({})).toBe(true);
    expect(isTaken({ programs: [{ ...program, batchSize: 3 }] })).toBe(false);
  });

  test("no two programs and no two streams have one name (7.6.1)", () => {
    const second = { ...program, name: "b" };
    expect(isTaken({ programs: [program, second], turns })).toBe(true);
    expect(isTaken({ programs: [program, { ...second, name: "a" }], turns })).toBe(false);
    const streams = [stream, { ...stream, name: "b" }];
    const programs = [program, { ...second, stream: 1 }];
    expect(isTaken({ programs, streams, turns })).toBe(true);
    expect(isTaken({ programs, streams: [stream, stream], turns })).toBe(false);
  });

  test("a job that one of format 2 can be is refused, and no other (7.7.1)", () => {
    const data = jobOf({ streams: [], programs: [], turns: [], steps: 0 }).data;
    const shuffled = data.map((set) => ({ ...set, isSequential: false }));
    expect(isTaken({ data: shuffled })).toBe(false);
    expect(isTaken({ data: shuffled, streams: [{ ...stream, epochRecords: 4 }] })).toBe(true);
    expect(isTaken({ data: shuffled, streams: [{ ...stream, name: "b" }] })).toBe(true);
    const programs = [program, { ...program, name: "b" }];
    expect(isTaken({ data: shuffled, programs, turns })).toBe(true);
  });
});

/** What a job's data sets, streams, programs and turns must be together (COMMITMENTS 7.6.1, 7.7.1,
 * 7.7.4, 7.7.5). */
import { refuse } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import { Batches } from "./batches.ts";
import { at, type Job, type JobStream } from "./job.ts";
import type { Timetable } from "./timetable.ts";

/** The batches of each stream. */
export function batchesOf(job: Job): Batches[] {
  return job.streams.map(
    (stream) => new Batches(stream, stream.data === null ? null : at(job.data, stream.data)),
  );
}

/** Refuses a job whose parts are none of 7.6.1 and 7.7.1, or whose steps are none of 7.7.5. */
export function checkPlan(job: Job, timetable: Timetable, batches: readonly Batches[]): void {
  checkNames(job.data);
  checkNames(job.programs);
  checkNames(job.streams);
  if (timetable.cycle > LIMITS.steps) throw refuse("a cycle of too many steps");
  const used = new Set(job.turns.map(({ program }) => program));
  if (used.size !== job.programs.length) throw refuse("a program without a turn");
  for (const { batchSize, microBatches } of job.programs) {
    if (batchSize % microBatches !== 0) throw refuse("micro-batches that do not divide the batch");
  }
  checkStreamOrder(job);
  for (const [number, stream] of job.streams.entries()) {
    checkStream(job, stream, timetable.stepsOfRun(number));
    if (stream.byPass) checkPass(timetable.longestPass(number), at(batches, number));
    else checkEpochs(timetable, number, at(batches, number));
  }
  checkSizes(job, timetable, batches);
  if (job.format === 3 && isOfFormatTwo(job)) throw refuse("a job of format 3 that is one of 2");
}

function checkNames(parts: readonly { readonly name: string }[]): void {
  if (new Set(parts.map(({ name }) => name)).size !== parts.length) throw refuse("a name twice");
}

/** Every stream has a program, and they are in the order of their first ones (7.7.1). */
function checkStreamOrder({ programs, streams }: Job): void {
  const order = [...new Set(programs.map(({ stream }) => stream))];
  if (order.length !== streams.length) throw refuse("a stream without a program");
  if (order.some((stream, k) => stream !== k)) throw refuse("streams in another order");
}

function checkStream(job: Job, stream: JobStream, steps: number): void {
  const records = stream.data === null ? 0 : at(job.data, stream.data).records;
  if (stream.epochRecords > records) throw refuse("an epoch of more records than there are");
  if (stream.byPass && stream.first !== 0) throw refuse("a pass that begins later");
  if (!stream.byPass && stream.first + steps > LIMITS.steps) throw refuse("too many batches");
  // 7.1 has no such rule for a job of format 1.
  if (job.format !== 1 && stream.data !== null && records === 0) {
    throw refuse("a data set that is read, and has no record");
  }
}

/** A pass has at most as many steps as an epoch has batches (7.6.1, 7.7.4). */
function checkPass(longest: number, batches: Batches): void {
  if (batches.ofPass !== null && longest > batches.ofPass) throw refuse("a pass of too many steps");
}

/** Cycles repeat the sizes of the first one (7.7.5). */
function checkEpochs(timetable: Timetable, stream: number, batches: Batches): void {
  const { job, cycle } = timetable;
  const { batchSize } = at(job.streams, stream);
  if (batches.ofEpoch === null || batches.lastSize === batchSize || job.steps <= cycle) return;
  if (timetable.stepsOfCycle(stream) % batches.ofEpoch !== 0) {
    throw refuse("a cycle of no whole epochs that is repeated");
  }
}

/** Each step of the first cycle executes a program of its batch's size (7.7.5). */
function checkSizes(job: Job, timetable: Timetable, batches: readonly Batches[]): void {
  for (const turn of timetable.turns) {
    const { batchSize } = at(job.programs, turn.program);
    const stream = at(job.streams, turn.stream);
    const own = at(batches, turn.stream);
    if (batchSize !== stream.batchSize && batchSize !== own.lastSize) {
      throw refuse("a batch size that the stream does not have");
    }
    // Passes are looked at in every turn, others as far as the job goes.
    const steps = stream.byPass ? turn.steps : timetable.stepsOfTurn(turn, job.steps);
    const last = own.lastOnes(stream.first + turn.earlier, steps);
    const due = batchSize === own.lastSize ? last : steps - last;
    const isOneSize = own.lastSize === stream.batchSize;
    if (!isOneSize && due !== steps) throw refuse("a step of another size than its batch");
  }
}

/** 7.7.1, its last sentence. */
function isOfFormatTwo({ data, streams, programs }: Job): boolean {
  return (
    data.every(({ isSequential }) => !isSequential) &&
    streams.every(({ epochRecords }) => epochRecords === 0) &&
    streams.length === programs.length &&
    programs.every(({ name, stream }) => at(streams, stream).name === name)
  );
}

/** The job digest (COMMITMENTS 7.2, 7.6.2, 7.7.2). */
import { Writer } from "../writer.ts";
import { at, type Job } from "./job.ts";

/** The members that come first in each layout. */
function begun(job: Job): Writer {
  return Writer.tagged(`job/${job.format}`).u32(job.format).text(job.contract);
}

/** 7.2. */
function layoutOne(job: Job): Writer {
  const [data, program] = [at(job.data, 0), at(job.programs, 0)];
  return begun(job)
    .hash(program.digest)
    .hash(job.genesisRoot)
    .hash(data.root)
    .u64(data.records)
    .u64(program.batchSize)
    .u64(data.orderSeed)
    .u64(job.rngSeed)
    .u64(job.steps)
    .u64(job.checkpointInterval)
    .hash(job.scalarsDigest)
    .u8(job.stopsOnNonFinite);
}

/** A data set's number from 1, 0 for none. */
function dataNumber(data: number | null): number {
  return data === null ? 0 : data + 1;
}

/** 7.6.2, to the programs. */
function layoutTwo(job: Job): Writer {
  const out = begun(job).hash(job.genesisRoot);
  out.list(job.data, (data) =>
    out.text(data.name).hash(data.root).u64(data.records).u64(data.orderSeed),
  );
  return out.list(job.programs, ({ name, digest, stream, batchSize, microBatches }) => {
    const { data, byPass, first } = at(job.streams, stream);
    out.text(name).hash(digest).u64(dataNumber(data));
    out.u64(batchSize).u64(microBatches).u8(byPass).u64(first);
  });
}

/** 7.7.2, to the programs. */
function layoutThree(job: Job): Writer {
  const out = begun(job).hash(job.genesisRoot);
  out.list(job.data, (data) => {
    out.text(data.name).hash(data.root).u64(data.records).u64(data.orderSeed);
    out.u8(data.isSequential);
  });
  out.list(job.streams, (stream) => {
    out.text(stream.name).u64(dataNumber(stream.data)).u64(stream.batchSize).u8(stream.byPass);
    out.u64(stream.epochRecords).u64(stream.first);
  });
  return out.list(job.programs, ({ name, digest, stream, batchSize, microBatches }) =>
    out.text(name).hash(digest).u64(stream).u64(batchSize).u64(microBatches),
  );
}

export function jobDigest(job: Job): Uint8Array {
  if (job.format === 1) return layoutOne(job).digest();
  const out = job.format === 2 ? layoutTwo(job) : layoutThree(job);
  return out
    .list(job.turns, ({ program, steps }) => out.u64(program).u64(steps))
    .u64(job.rngSeed)
    .u64(job.steps)
    .u64(job.checkpointInterval)
    .hash(job.scalarsDigest)
    .u8(job.stopsOnNonFinite)
    .u8(job.stopsOnSlot)
    .hash(job.continues)
    .digest();
}

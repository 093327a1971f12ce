/** Reads a job's files into its terms (COMMITMENTS 7). */
import { refuse } from "../errors.ts";
import type { OperatorTable } from "../operators/index.ts";
import { logFormOf } from "../program/contract.ts";
import { readProgram, type Program } from "../program/read.ts";
import { stepProgramOf } from "../program/step.ts";
import { CHAIN_TYPE, LOG_CHAIN, LOSS_CHAIN, slotOrder } from "../state.ts";
import type { TensorType } from "../tensors.ts";
import { checkFit } from "./fit.ts";
import { inputsOf, SCALAR } from "./inputs.ts";
import { at, type Job } from "./job.ts";
import { readManifest, type Manifest } from "./manifest.ts";
import { batchesOf, checkPlan } from "./plan.ts";
import { seedOf } from "./seeds.ts";
import type { StepProgram } from "../program/program.ts";
import type { DataSet, Step, Terms } from "./terms.ts";
import { Timetable } from "./timetable.ts";

/** A job's files: of programs in the manifest's order, or by the names of their files. */
export interface JobFiles {
  readonly manifest: Uint8Array;
  readonly programs: readonly Uint8Array[] | ReadonlyMap<string, Uint8Array>;
}

/** The file that holds a program's text. */
export function programFile(format: Job["format"], name: string): string {
  return format === 1 ? "program.txt" : `program-${name}.txt`;
}

/** The terms of a job; files that are none are refused. */
export function readTerms(files: JobFiles, table: OperatorTable): Terms {
  const manifest = readManifest(files.manifest);
  const { job, jobDigest } = manifest;
  const timetable = new Timetable(job);
  const batches = batchesOf(job);
  checkPlan(job, timetable, batches);
  const programs = textsOf(job, files.programs).map((text) => readProgram(text, table));
  checkFit(manifest, programs, timetable);
  const { contract } = at(programs, 0);
  const stepPrograms = programs.map((program, k) =>
    stepProgramOf(program, at(job.programs, k).microBatches, table),
  );
  const data = job.data.map(({ root, records }, number): DataSet => ({
    number,
    root,
    records,
    schema: at(manifest.schemas, number),
  }));
  return {
    format: job.format,
    jobDigest,
    contract,
    logs: logFormOf(contract),
    genesisRoot: job.genesisRoot,
    steps: job.steps,
    checkpointInterval: job.checkpointInterval,
    stopsOnNonFinite: job.stopsOnNonFinite,
    stopsOnSlot: job.stopsOnSlot,
    slots: slotsOf(at(programs, 0)),
    programs: stepPrograms,
    data,
    step: stepsOf(manifest, timetable, stepPrograms, data),
  };
}

/** The programs' texts in the job's order. */
function textsOf({ format, programs }: Job, given: JobFiles["programs"]): Uint8Array[] {
  const texts = programs.map(({ name }, number) =>
    given instanceof Map
      ? (given as ReadonlyMap<string, Uint8Array>).get(programFile(format, name))
      : (given as readonly Uint8Array[])[number],
  );
  const count = given instanceof Map ? given.size : (given as readonly Uint8Array[]).length;
  if (count !== programs.length) throw refuse("another number of programs than the job has");
  return texts.map((text) => {
    if (text === undefined) throw refuse("a program of the job is missing");
    return text;
  });
}

/** The slots of a state (COMMITMENTS 5.1, 5.5, 5.6). */
function slotsOf({ text }: Program): Map<string, TensorType> {
  const slots = inputsOf(text, "state");
  for (const chain of [LOSS_CHAIN, LOG_CHAIN]) {
    if (slots.has(chain)) throw refuse(`a program has the slot ${chain}`);
    slots.set(chain, CHAIN_TYPE);
  }
  return new Map(slotOrder(slots.keys()).map((name) => [name, slots.get(name) ?? CHAIN_TYPE]));
}

/** What step t executes; steps of one program share it. */
function stepsOf(
  { job, scalars }: Manifest,
  timetable: Timetable,
  programs: readonly StepProgram[],
  sets: readonly DataSet[],
): (t: number) => Step {
  const batches = batchesOf(job);
  const seeds = job.streams.map((_, stream) => seedOf(job, stream));
  return (t) => {
    if (!Number.isSafeInteger(t) || t < 0 || t >= job.steps) throw refuse(`there is no step ${t}`);
    const { program, stream, batchNumber } = timetable.at(t);
    const { data, first } = at(job.streams, stream);
    return {
      program: at(programs, program),
      batchNumber,
      data: data === null ? null : at(sets, data),
      record: (place) => at(batches, stream).record(batchNumber, place),
      scalar: (name) => {
        const held = scalars.get(name.slice(SCALAR.length));
        const value = typeof held === "number" ? held : held?.[batchNumber - first];
        if (value === undefined) throw refuse(`the job has no scalar ${name}`);
        return value;
      },
      key: [at(seeds, stream), BigInt(batchNumber)],
    };
  };
}

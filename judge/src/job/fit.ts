/** Whether manifest and program texts fit together (COMMITMENTS 7.4, 7.6.5, 7.6.9, 7.7.6). */
import { equalBytes } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { logFormOf } from "../program/contract.ts";
import type { Program } from "../program/read.ts";
import type { Schema } from "../records.ts";
import { sameType, type TensorType } from "../tensors.ts";
import { at, type Job, type JobProgram } from "./job.ts";
import type { Manifest } from "./manifest.ts";
import { inputsOf } from "./inputs.ts";
import type { Timetable } from "./timetable.ts";

/** The slot of 7.6.7. */
const STOP_SLOT = "control.stop";
const STOP_TYPE: TensorType = { dtype: "bool", shape: [] };

/** Refuses programs, in the job's order, that are not those of the manifest. */
export function checkFit(
  { job, scalars, schemas }: Manifest,
  programs: readonly Program[],
  timetable: Timetable,
): void {
  const slots = inputsOf(at(programs, 0).text, "state");
  const read = new Set<string>();
  for (const [number, program] of programs.entries()) {
    const own = at(job.programs, number);
    checkProgram(job, own, program);
    const { data } = at(job.streams, own.stream);
    checkFields(own, program, data === null ? null : at(schemas, data));
    if (!sameTypes(slots, inputsOf(program.text, "state"))) {
      throw refuse("programs of other slots");
    }
    for (const name of inputsOf(program.text, "scalar").keys()) {
      read.add(name);
      checkScalar(scalars.get(name), own, timetable);
    }
  }
  if (read.size !== scalars.size) throw refuse("scalars that no program reads");
  const stop = slots.get(STOP_SLOT);
  if (job.stopsOnSlot && (stop === undefined || !sameType(stop, STOP_TYPE))) {
    throw refuse("a job that stops on a slot, and has none");
  }
}

function checkProgram(job: Job, own: JobProgram, { text, contract, digest }: Program): void {
  if (!equalBytes(digest, own.digest)) throw refuse("a program of another digest");
  if (text.contract !== job.contract) throw refuse("a program of another contract");
  if (logFormOf(contract) !== null && job.programs.length > 1) {
    throw refuse("several programs under a contract with logs");
  }
}

/** Batch inputs are the fields of the data, each of b/V records (7.4, 7.6.9). */
function checkFields(own: JobProgram, { text }: Program, schema: Schema | null): void {
  const rows = own.batchSize / own.microBatches;
  const fields = new Map(
    schema?.fields.map(({ name, type: { dtype, shape } }) => [
      name,
      { dtype, shape: [rows, ...shape] },
    ]),
  );
  if (!sameTypes(fields, inputsOf(text, "batch"))) throw refuse("a batch of other fields");
}

function sameTypes(
  a: ReadonlyMap<string, TensorType>,
  b: ReadonlyMap<string, TensorType>,
): boolean {
  const same = [...a].every(([name, type]) => {
    const other = b.get(name);
    return other !== undefined && sameType(type, other);
  });
  return same && a.size === b.size;
}

/** A table has a row for each batch of the stream (7.6.5, 7.7.6). */
function checkScalar(
  scalar: number | readonly number[] | undefined,
  { stream }: JobProgram,
  timetable: Timetable,
): void {
  if (scalar === undefined) throw refuse("a scalar that the job does not have");
  if (typeof scalar === "number") return;
  if (scalar.length !== timetable.rows(stream)) throw refuse("a table of another number of rows");
}

/** The member `commitment` of a manifest (COMMITMENTS 7.5.2, 7.6.10, 7.7.7), its numbers in range. */
import { compareBytes } from "../bytes.ts";
import { refuse } from "../errors.ts";
import type { Json } from "../json.ts";
import { LIMITS } from "../limits.ts";
import {
  booleanOf,
  decimalOf,
  digestOf,
  exactly,
  integerOf,
  listOf,
  nameOf,
  stringOf,
} from "../members.ts";
import type { Format, Job, JobData, JobProgram, JobStream, Turn } from "./job.ts";

/** Ranges of 7.1, 7.6.1 and 7.7.1. */
const SEED = 2n ** 64n - 1n;
const RNG_SEED = 2n ** 63n - 1n;
const PARTS = 64;
const TURNS = 1024;
const MICRO_BATCHES = 65536;
const NO_RUN = new Uint8Array(32);

/** The members that all formats have. */
const COMMON = [
  "format_version",
  "contract",
  "genesis_root",
  "rng_seed",
  "steps",
  "checkpoint_interval",
  "scalars_digest",
  "stop_on_non_finite",
] as const;
const ONE = ["program_digest", "data_root", "record_count", "batch_size", "order_seed"] as const;
const TWO = ["data", "programs", "schedule", "stop_on_slot", "continues"] as const;

type Common = Pick<
  Job,
  | "format"
  | "contract"
  | "genesisRoot"
  | "rngSeed"
  | "steps"
  | "checkpointInterval"
  | "scalarsDigest"
  | "stopsOnNonFinite"
>;
type Get<Name extends string> = (name: Name) => Json;

/** The job of a commitment. Whether its parts fit each other is looked at elsewhere. */
export function jobOf(value: Json, format: Format): Job {
  if (format === 1) return one(exactly(value, [...COMMON, ...ONE]));
  if (format === 2) return two(exactly(value, [...COMMON, ...TWO]));
  return three(exactly(value, [...COMMON, ...TWO, "streams"]));
}

function common(get: Get<(typeof COMMON)[number]>, format: Format): Common {
  integerOf(get("format_version"), format, format);
  return {
    format,
    contract: stringOf(get("contract")),
    genesisRoot: digestOf(get("genesis_root")),
    rngSeed: decimalOf(get("rng_seed"), RNG_SEED),
    steps: integerOf(get("steps"), 0, LIMITS.steps),
    checkpointInterval: integerOf(get("checkpoint_interval"), 1, LIMITS.steps),
    scalarsDigest: digestOf(get("scalars_digest")),
    stopsOnNonFinite: booleanOf(get("stop_on_non_finite")),
  };
}

function one(get: Get<(typeof COMMON)[number] | (typeof ONE)[number]>): Job {
  const batchSize = batchSizeOf(get("batch_size"));
  return {
    ...common(get, 1),
    data: [
      {
        name: "",
        root: digestOf(get("data_root")),
        records: integerOf(get("record_count"), 0, LIMITS.records),
        orderSeed: decimalOf(get("order_seed"), SEED),
        isSequential: false,
      },
    ],
    streams: [{ name: "", data: 0, batchSize, byPass: false, epochRecords: 0, first: 0 }],
    programs: [
      { name: "", digest: digestOf(get("program_digest")), stream: 0, batchSize, microBatches: 1 },
    ],
    turns: [{ program: 0, steps: 1 }],
    stopsOnSlot: false,
    continues: NO_RUN,
  };
}

function two(get: Get<(typeof COMMON)[number] | (typeof TWO)[number]>): Job {
  const data = listOf(get("data"), 0, PARTS).map((item) =>
    dataOf(exactly(item, ["name", "root", "record_count", "order_seed"]), false),
  );
  const members = ["name", "digest", "data", "batch_size", "micro_batches", "by_pass", "first"];
  const read = listOf(get("programs"), 1, PARTS).map((item, stream): [JobProgram, JobStream] => {
    const program = exactly(item, members);
    const own = { ...programOf(program), stream };
    const { name, batchSize } = own;
    const rest = streamOf(program, data.length);
    return [own, { ...rest, name, batchSize, epochRecords: 0 }];
  });
  const programs = read.map(([program]) => program);
  return {
    ...common(get, 2),
    ...later(get, programs.length),
    data,
    programs,
    streams: read.map(([, stream]) => stream),
  };
}

function three(get: Get<(typeof COMMON)[number] | (typeof TWO)[number] | "streams">): Job {
  const data = listOf(get("data"), 0, PARTS).map((item) => {
    const member = exactly(item, ["name", "root", "record_count", "order_seed", "order"]);
    const order = stringOf(member("order"));
    if (order !== "shuffled" && order !== "sequential") throw refuse("an order that is none");
    return dataOf(member, order === "sequential");
  });
  const streams = listOf(get("streams"), 1, PARTS).map((item): JobStream => {
    const members = ["name", "data", "batch_size", "by_pass", "epoch_records", "first"] as const;
    const member = exactly(item, members);
    const epoch = member("epoch_records");
    return {
      ...streamOf(member, data.length),
      name: nameOf(member("name")),
      batchSize: batchSizeOf(member("batch_size")),
      epochRecords: epoch === null ? 0 : integerOf(epoch, 1, LIMITS.records),
    };
  });
  const programs = listOf(get("programs"), 1, PARTS).map((item): JobProgram => {
    const members = ["name", "digest", "stream", "batch_size", "micro_batches"] as const;
    const member = exactly(item, members);
    const stream = integerOf(member("stream"), 0, streams.length - 1);
    return { ...programOf(member), stream };
  });
  return { ...common(get, 3), ...later(get, programs.length), data, streams, programs };
}

function batchSizeOf(value: Json): number {
  return integerOf(value, 1, LIMITS.batchSize);
}

function dataOf(
  get: Get<"name" | "root" | "record_count" | "order_seed">,
  isSequential: boolean,
): JobData {
  return {
    name: nameOf(get("name")),
    root: digestOf(get("root")),
    records: integerOf(get("record_count"), 0, LIMITS.records),
    orderSeed: decimalOf(get("order_seed"), SEED),
    isSequential,
  };
}

function programOf(
  get: Get<"name" | "digest" | "batch_size" | "micro_batches">,
): Omit<JobProgram, "stream"> {
  return {
    name: nameOf(get("name")),
    digest: digestOf(get("digest")),
    batchSize: batchSizeOf(get("batch_size")),
    microBatches: integerOf(get("micro_batches"), 1, MICRO_BATCHES),
  };
}

function streamOf(
  get: Get<"data" | "by_pass" | "first">,
  sets: number,
): Pick<JobStream, "data" | "byPass" | "first"> {
  const data = get("data");
  return {
    data: data === null ? null : integerOf(data, 0, sets - 1),
    byPass: booleanOf(get("by_pass")),
    first: integerOf(get("first"), 0, LIMITS.steps),
  };
}

/** The members of 7.6.10 that format 1 does not have. */
function later(
  get: Get<"schedule" | "stop_on_slot" | "continues">,
  programs: number,
): Pick<Job, "turns" | "stopsOnSlot" | "continues"> {
  const turns = listOf(get("schedule"), 1, TURNS).map((item): Turn => {
    const turn = exactly(item, ["program", "steps"]);
    return {
      program: integerOf(turn("program"), 0, programs - 1),
      steps: integerOf(turn("steps"), 1, LIMITS.steps),
    };
  });
  const given = get("continues");
  const continues = given === null ? NO_RUN : digestOf(given);
  if (given !== null && compareBytes(continues, NO_RUN) === 0) {
    throw refuse("32 zero bytes that are not written as null");
  }
  return { turns, stopsOnSlot: booleanOf(get("stop_on_slot")), continues };
}

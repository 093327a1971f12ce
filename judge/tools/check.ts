/**
 * Runs in a worker of `tools/mutation.js`, which has put switches into the judge's sources: all
 * cases of `vectors/` for a judge, once as they are, and then those that come past a switch, with it
 * thrown, until one differs.
 */
import { state } from "./switches.ts";

import process from "node:process";
import { isDeepStrictEqual } from "node:util";
import { parentPort, workerData } from "node:worker_threads";

import { toHex, toUtf8 } from "../src/bytes.ts";
import { RefusedError } from "../src/errors.ts";
import { readTerms } from "../src/job/read.ts";
import { readProgram } from "../src/program/read.ts";
import { readSession } from "../src/session/log.ts";
import { casesOf, fileOf, TABLE, type Case } from "../test/program/cases.ts";
import { Bundle, bundleNames } from "../test/protocol/bundles.ts";
import { bytesAt, FILE, TERMS } from "../test/session/golden.ts";

interface Given {
  readonly switches: readonly number[];
  /** Switches by which jobs and programs are read: then no case knows the terms of another. */
  readonly reading: ReadonlySet<number>;
  readonly sample: number;
}

/** One case: its name, and what the judge makes of it. */
interface Checked {
  readonly name: string;
  readonly run: () => unknown;
}

/** Calls of switches in one case beyond ten times its own; a loop that does not end passes it. */
const MORE_CALLS = 3_000_000;
/** Milliseconds of a processor that the cases of one change may take, as they took without it. */
const MOST_MS = 6_000;

const first = casesOf("programs")[0]?.text ?? "";
const programsOf = ({ program, programs }: Case): Uint8Array[] =>
  (programs ?? [program ?? first]).map(toUtf8);

function* cases(sample: number): Generator<Checked> {
  for (const name of bundleNames()) {
    const bundle = new Bundle(name);
    const every = Math.max(1, Math.ceil(bundle.cases.length / sample));
    const isSmall = bundle.cases.length < 100;
    for (const [number, one] of bundle.cases.entries()) {
      if (!isSmall && number % every !== 0) continue;
      const run = (): unknown => {
        if (state.isFresh) bundle.forget();
        return bundle.judge(one);
      };
      yield { name: `${name}, ${one.name}`, run };
    }
  }
  for (const one of casesOf("programs")) {
    const run = (): unknown => toHex(readProgram(fileOf(one), TABLE).digest);
    yield { name: `program, ${one.name}`, run };
  }
  for (const list of ["jobs", "jobs_2", "jobs_3"] as const) {
    for (const one of casesOf(list)) {
      const files = { manifest: fileOf(one), programs: programsOf(one) };
      yield { name: `${list}, ${one.name}`, run: () => toHex(readTerms(files, TABLE).jobDigest) };
    }
  }
  for (const { name, entries } of FILE.logs) {
    yield { name: `session, ${name}`, run: () => readSession(entries.map(bytesAt), TERMS) };
  }
}

/** What a case gives; a refusal by its name only, and another error as itself. */
function given(run: () => unknown, most = Infinity): unknown {
  state.calls = 0;
  state.most = most;
  try {
    const value = run();
    const isRefused = typeof value === "object" && value !== null && "refusal" in value;
    return isRefused ? "refused" : value;
  } catch (error) {
    if (error instanceof RefusedError) return "refused";
    return { error: error instanceof Error ? error.message : String(error) };
  }
}

const { reading, sample, switches } = workerData as Given;
/** Milliseconds of a processor so far. */
function worked(): number {
  const { system, user } = process.cpuUsage();
  return (system + user) / 1000;
}

const checked = [...cases(sample)].map((one) => {
  state.seen = new Set();
  const began = worked();
  const due = given(one.run);
  const most = 10 * state.calls + MORE_CALLS;
  return { ...one, due, most, seen: state.seen, ms: worked() - began };
});
checked.sort((a, b) => a.ms - b.ms);

/** The cases that come past a switch, cheap ones first, as many as the time allows. */
function casesPast(number: number): typeof checked {
  let ms = 0;
  return checked.filter((one) => one.seen.has(number) && (ms += one.ms) <= MOST_MS);
}
parentPort?.postMessage({ cases: checked.length, ms: worked() });
for (const number of switches) {
  state.thrown = number;
  state.isFresh = reading.has(number);
  state.seen = new Set();
  const past = casesPast(number);
  const noticed = past.find(({ run, due, most }) => {
    parentPort?.postMessage({ begun: number });
    return !isDeepStrictEqual(given(run, most), due);
  });
  state.thrown = -1;
  parentPort?.postMessage({ number, by: noticed?.name ?? null, cases: past.length });
}

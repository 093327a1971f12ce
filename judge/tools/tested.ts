/** Runs tests in a worker of `tools/untested.js`, which has put switches into the judge's sources. */
import { state } from "./switches.ts";

import process from "node:process";
import { parentPort, workerData } from "node:worker_threads";

import { taken } from "./testing.ts";

interface Past {
  readonly file: number;
  /** The number of the test in its file. */
  readonly at: number;
  readonly ms: number;
  readonly calls: number;
}

/** Calls of switches in one test beyond ten times its own; a loop that does not end passes it. */
const MORE_CALLS = 3_000_000;

const { thrown, past } = workerData as { thrown: number; past?: readonly Past[] };

/** Milliseconds of a processor so far. */
function worked(): number {
  const { system, user } = process.cpuUsage();
  return (system + user) / 1000;
}

/** What is wrong, if something is. */
async function wrong(run: () => unknown): Promise<string | null> {
  try {
    await run();
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

type Load = () => Promise<unknown>;

/** All tests, none of which may fail, with the switches that each comes past. */
async function all(loads: readonly Load[]): Promise<unknown> {
  const known = [];
  const everywhere = new Set<number>();
  for (const [file, load] of loads.entries()) {
    await load();
    // What one file loads, another one has from it.
    for (const one of state.seen) everywhere.add(one);
    const here = taken();
    for (const [at, { name, run }] of here.entries()) {
      state.seen = new Set();
      state.calls = 0;
      const began = worked();
      const why = await wrong(run);
      if (why !== null) return { by: `${name}: ${why}` };
      known.push({ file, at, ms: worked() - began, calls: state.calls, seen: state.seen });
    }
    state.seen = new Set();
  }
  return { known: known.map((one) => ({ ...one, seen: [...one.seen, ...everywhere] })) };
}

/** The first test that fails with the switch thrown. */
async function first(loads: readonly Load[], tests: readonly Past[]): Promise<unknown> {
  state.thrown = thrown;
  const files = new Map<number, ReturnType<typeof taken>>();
  for (const { file, at, ms, calls } of tests) {
    parentPort?.postMessage({ by: "a worker that stops", ms });
    if (!files.has(file)) {
      state.most = Infinity;
      const why = await wrong(loads[file] ?? ((): void => undefined));
      if (why !== null) return { by: `a file of tests, when it is loaded: ${why}` };
      files.set(file, taken());
    }
    state.calls = 0;
    state.most = 10 * calls + MORE_CALLS;
    const one = files.get(file)?.[at];
    if (one === undefined) return { by: "a file of tests, which has other ones" };
    if ((await wrong(one.run)) !== null) return { by: one.name };
  }
  return { by: null };
}

export async function runTests(loads: readonly Load[]): Promise<void> {
  parentPort?.postMessage(await (past === undefined ? all(loads) : first(loads, past)));
}

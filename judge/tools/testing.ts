/**
 * Stands for `vitest` in the bundle of `tools/untested.js`: what tests declare is listed here, and
 * run by the tool, test by test. Expectations are vitest's own.
 */
import { format } from "node:util";

import { chai, JestAsymmetricMatchers, JestChaiExpect, JestExtend } from "@vitest/expect";

type Run = (...args: readonly never[]) => unknown;
interface Declared {
  readonly name: string;
  readonly run: () => unknown;
}

chai.use(JestExtend);
chai.use(JestChaiExpect);
chai.use(JestAsymmetricMatchers);
export const expect = chai.expect;

let declared: Declared[] = [];
const around: string[] = [];

/** What has been declared since this was called last. */
export function taken(): readonly Declared[] {
  const found = declared;
  declared = [];
  return found;
}

/** A name with the values of its row in it. */
function named(name: string, row: unknown): string {
  const values = Array.isArray(row) ? (row as unknown[]) : [row];
  const held = (typeof row === "object" ? row : {}) as Readonly<Record<string, unknown>>;
  const text = (value: unknown): string =>
    typeof value === "string" ? value : JSON.stringify(value);
  const filled = name.replace(/\$([a-z]+)/g, (_, key: string) => text(held[key]));
  const places = filled.match(/%[a-z]/g)?.length ?? 0;
  return format(filled, ...values.slice(0, places));
}

type Adding = (name: string, run: Run) => void;

/** A function that adds one thing, and one for each of some rows. */
function adding(add: (name: string, run: () => unknown) => void): Adding & {
  each: (rows: readonly unknown[]) => Adding;
} {
  const each =
    (rows: readonly unknown[]): Adding =>
    (name, run) => {
      for (const row of rows) {
        const args = (Array.isArray(row) ? row : [row]) as never[];
        add(named(name, row), () => run(...args));
      }
    };
  return Object.assign((name: string, run: Run) => { add(name, run); }, { each }); // prettier-ignore
}

export const test = adding((name, run) => {
  declared.push({ name: [...around, name].join(" > "), run });
});
export const it = test;
export const describe = adding((name, run) => {
  around.push(name);
  run();
  around.pop();
});

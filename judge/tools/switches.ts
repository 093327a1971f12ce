/**
 * The switches that `tools/mutation.js` puts into the judge's sources. A module of its own, and the
 * first one that `check.ts` imports: some sources and tests read a job as soon as they are loaded.
 */
export const state = {
  thrown: -1,
  calls: 0,
  most: Infinity,
  isFresh: true,
  seen: new Set<number>(),
};

class Endless extends Error {}

function off(number: number): boolean {
  if (++state.calls > state.most) throw new Endless("it does not end");
  state.seen.add(number);
  return number === state.thrown;
}

function bound(number: number, kind: string, a: number, b: number): boolean {
  const isShifted = off(number);
  if (kind === "<") return isShifted ? a <= b : a < b;
  if (kind === "<=") return isShifted ? a < b : a <= b;
  if (kind === ">") return isShifted ? a >= b : a > b;
  return isShifted ? a > b : a >= b;
}

function turn(): void {
  if (++state.calls > state.most) throw new Endless("it does not end");
}

Object.assign(globalThis, { __off: off, __bound: bound, __turn: turn });

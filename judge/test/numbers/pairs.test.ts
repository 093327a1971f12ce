/** Pairs (OPENING 10.2 to 10.8), against the clauses written down once more, for all kinds of pairs. */
import { describe, expect, test } from "vitest";

import * as f64 from "../../src/numbers/binary64.ts";
import * as pairs from "../../src/numbers/pairs.ts";

const { Pair } = pairs;
type Two = readonly [x: number, e: number];

const [C, F, W, T] = [2 ** -45, 2 ** -42, 2 ** -47, 2 ** -1060];
const NUMBERS = [0, -0, 1, -1, 0.3, -2.5, 3e5, 1e-200, -1e200, Infinity, -Infinity, NaN];
const BOUNDS = [0, 1e-9, 0.2, 1, 2.5, Infinity];
const PAIRS = NUMBERS.flatMap((x) => BOUNDS.map((e): Two => [x, e]));

/** 10.4. */
function after(x: number, e: number, ...given: readonly Two[]): Two {
  if (Number.isNaN(x)) return [NaN, Infinity];
  if (Number.isFinite(x)) return [x, Number.isNaN(e) ? Infinity : e];
  return [x, given.some(([a, p]) => !Number.isFinite(a) && a === a && p === 0) ? 0 : Infinity];
}
/** "a ≠ 0" of 10.2.1. */
const isNot0 = (a: number): boolean => Number.isNaN(a) || Math.abs(a) > 0;
const size = Math.abs;

const ARITHMETIC: Readonly<Record<string, (a: Two, b: Two) => Two>> = {
  plus: ([a, p], [b, q]) => after(a + b, p + q + C * (size(a) + size(b)), [a, p], [b, q]),
  minus: ([a, p], [b, q]) => after(a - b, p + q + C * (size(a) + size(b)), [a, p], [b, q]),
  times: ([a, p], [b, q]) => {
    const [x, t] = [a * b, isNot0(a) && isNot0(b) ? T : 0];
    return after(x, p * size(b) + q * size(a) + p * q + C * size(x) + t, [a, p], [b, q]);
  },
  over: ([a, p], [b, q]) => {
    const [s, x, t] = [size(b) - q, a / b, isNot0(a) ? T : 0];
    const e = (p + size(x) * q) / s + C * size(x) + t;
    return after(x, s > 0 ? e : Infinity, [a, p], [b, q]);
  },
};

const root = ([a, p]: Two): Two => {
  const x = Math.sqrt(a);
  return after(x, (p === 0 ? 0 : Math.min(p / x, Math.sqrt(p))) + C * x, [a, p]);
};
const w = (p: number): number => (p < 1 ? 2 * p : Infinity);
const exp = ([a, p]: Two): Two => {
  const [x, t] = [f64.exp(a), Number.isFinite(a) ? T : 0];
  return after(x, x * (w(p) + F) + (p < 1 ? t : Infinity), [a, p]);
};
const log = ([a, p]: Two): Two => {
  const [x, s] = [f64.log(a), a - p];
  return after(x, (s > 0 ? p / s : Infinity) + F * size(x), [a, p]);
};
const sloped =
  (f: (x: number) => number, slope: number) =>
  ([a, p]: Two): Two => {
    const x = f(a);
    return after(x, slope * p + F * size(x) + (isNot0(x) || isNot0(a) ? T : 0), [a, p]);
  };
const ofOperand =
  (f: (x: number) => number) =>
  ([a, p]: Two): Two =>
    after(f(a), F * size(f(a)) + (isNot0(a) ? T : 0), [a, p]);
const LN2: Two = [0.6931471805599453, 0];
const { over, times } = ARITHMETIC as Record<"over" | "times", (a: Two, b: Two) => Two>;

const FUNCTIONS: Readonly<Record<string, (a: Two) => Two>> = {
  exp,
  log,
  sigmoid: ([a, p]) => {
    const x = 1 / (1 + f64.exp(-a));
    return after(x, x * (w(p) + F) + (size(a) === Infinity ? 0 : T), [a, p]);
  },
  tanh: sloped(f64.tanh, 1),
  sin: sloped(f64.sin, 1),
  cos: sloped(f64.cos, 1),
  erf: sloped(f64.erf, 1.25),
  expm1: ofOperand(f64.expm1),
  log1p: ofOperand(f64.log1p),
  sqrt: root,
  rsqrt: (a) => over([1, 0], root(a)),
  exp2: (a) => exp(times(a, LN2)),
  log2: (a) => over(log(a), LN2),
};

const two = ({ x, e }: InstanceType<typeof Pair>): Two => [x, e];
const pair = ([x, e]: Two): InstanceType<typeof Pair> => new Pair(x, e);

describe("pairs", () => {
  test.each(["plus", "minus", "times", "over"] as const)("a %s b (10.2, 10.4)", (name) => {
    for (const a of PAIRS) {
      for (const b of PAIRS) {
        const found = two(pairs[name](pair(a), pair(b)));
        const due = ARITHMETIC[name]?.(a, b);
        if (found.some((one, k) => !Object.is(one, due?.[k]))) expect({ a, b, found }).toBe(due);
      }
    }
  });

  test.each(Object.keys(pairs.FUNCTIONS))("%s (10.2 to 10.4, 10.9)", (name) => {
    for (const a of PAIRS) {
      const found = pairs.FUNCTIONS[name]?.(pair(a)) ?? pair(a);
      expect({ a, found: two(found) }).toEqual({ a, found: FUNCTIONS[name]?.(a) });
    }
  });

  test("widened (10.5)", () => {
    for (const [x, e] of PAIRS) {
      for (const n of [0, 1, 1000]) {
        const more = size(x) === Infinity && e === 0 ? 0 : e + (n + 16) * W * size(x);
        const due = [x, Number.isNaN(more) ? Infinity : more];
        expect(two(pairs.widened(pair([x, e]), n))).toEqual(due);
      }
    }
  });

  test("a bound that is agreed: a NaN or a negative one is infinite (9.4.1)", () => {
    const due = [0, 1, Infinity, Infinity, Infinity, 0];
    const found = [0, 1, Infinity, NaN, -1, -0].map(
      (e) => pairs.pairOfBits(pairs.bitsOfPair(new Pair(3, e))).e + 0,
    );
    expect(found).toEqual(due);
    expect(pairs.pairOfBits(pairs.bitsOfPair(new Pair(-2.5, 7)))).toEqual(new Pair(-2.5, 7));
  });
});

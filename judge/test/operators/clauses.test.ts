/** Real numbers that are no lifting of a form (OPENING 10.9.2 to 10.9.4), line by line. */
import { describe, expect, test } from "vitest";

import {
  FUNCTIONS,
  minus,
  negated,
  over,
  Pair,
  plus,
  root,
  times,
} from "../../src/numbers/pairs.ts";
import type { Attribute } from "../../src/operators/attributes.ts";
import { CLAUSES } from "../../src/operators/clauses.ts";
import { fail } from "./calls.ts";

const given = (operands: Readonly<Record<string, Pair>>): Map<string, Pair> =>
  new Map(Object.entries(operands));

function real(
  name: string,
  operands: Readonly<Record<string, Pair>>,
  attributes: Readonly<Record<string, Attribute>>,
  output = 0,
): Pair {
  const clause = CLAUSES[name] ?? fail(name);
  return clause(given(operands), new Map(Object.entries(attributes)), output);
}

const of = (name: string, a: Pair): Pair => FUNCTIONS[name]?.(a) ?? fail(name);
const number = (x: number): Pair => new Pair(x);

describe("x^y (10.9.2)", () => {
  const by = (size: number, y: number): Pair =>
    of("exp", times(of("log", number(size)), number(y)));
  const y01 = Math.fround(0.1);
  test.each<[x: number, y: number, due: Pair]>([
    [NaN, 0, number(NaN)],
    [Infinity, 0, number(NaN)],
    [-Infinity, 2, number(NaN)],
    [1, NaN, number(1)],
    [1, 7, number(1)],
    [-2, 0, number(1)],
    [0, 0, number(1)],
    [0, 2, number(0)],
    [-0, 2, number(0)],
    [-0, 3, number(-0)],
    [-0, 0.5, number(0)],
    [-0, Infinity, number(0)],
    [0, -1, number(Infinity)],
    [-0, -1, number(-Infinity)],
    [-0, -2, number(Infinity)],
    [0, NaN, number(NaN)],
    [-2, 0.5, number(NaN)],
    [-2, NaN, number(NaN)],
    [-2, 3, negated(by(2, 3))],
    [-2, 2, by(2, 2)],
    [-2, Infinity, by(2, Infinity)],
    [-1, 5, negated(by(1, 5))],
    [3, 0.1, by(3, y01)],
    [3, NaN, by(3, NaN)],
  ])("%d^%d", (x, exponent, due) => {
    expect(real("aten.pow.Tensor_Scalar", { x: number(x) }, { exponent })).toEqual(due);
  });
});

const [p, g, m, v] = [1.5, -0.3, 0.2, 0.01].map(number) as [Pair, Pair, Pair, Pair];
const [lr, b1p, b2p, coefficient] = [0.1, 0.9, 0.99, 0.7].map(number) as [Pair, Pair, Pair, Pair];

describe("Adam (10.9.3)", () => {
  const settings = { beta1: 0.9, beta2: 0.99, eps: 1e-8 };
  const operands = { p, g, m, v, lr, beta1_power: b1p, beta2_power: b2p };

  /** p', m' and v' from the gradient that goes in, and from p as it is kept. */
  function due(gradient: Pair, kept: Pair): Pair[] {
    const m1 = plus(m, times(minus(gradient, m), number(1 - 0.9)));
    const squares = times(times(gradient, gradient), number(1 - 0.99));
    const v1 = plus(times(v, number(0.99)), squares);
    const step = over(lr, minus(number(1), b1p));
    const below = plus(over(root(v1), root(minus(number(1), b2p))), number(1e-8));
    return [minus(kept, times(step, over(m1, below))), m1, v1];
  }
  const shrunk = (decay: number): Pair => times(p, minus(number(1), times(lr, number(decay))));

  test.each<[string, Record<string, Pair>, number, Pair[]]>([
    ["adam_step", operands, 0, due(g, p)],
    ["adam_step", operands, 0.5, due(plus(g, times(p, number(0.5))), p)],
    ["adam_step", { ...operands, coefficient }, 0, due(times(g, coefficient), p)],
    ["adamw_step", operands, 0.5, due(g, shrunk(0.5))],
    ["adamw_step", operands, 0, due(g, shrunk(0))],
    ["adamw_step", { ...operands, coefficient }, 0.5, due(times(g, coefficient), shrunk(0.5))],
  ])("%s", (name, own, decay, want) => {
    const attributes = { ...settings, weight_decay: decay };
    const found = [0, 1, 2].map((k) => real(`tallystick.${name}`, own, attributes, k));
    expect(found).toEqual(want);
  });
});

describe("SGD (10.9.4)", () => {
  const buffer = number(0.4);
  const decayed = plus(g, times(p, number(0.5)));
  const scaled = times(g, coefficient);
  const next = (gradient: Pair): Pair =>
    plus(times(buffer, number(0.9)), times(gradient, number(1 - 0.2)));
  const after = (u: Pair): Pair => minus(p, times(lr, u));
  const plain = { momentum: 0, dampening: 0.2, nesterov: false, weight_decay: 0 };

  test.each<[string, Record<string, Pair>, Record<string, Attribute>, Pair[]]>([
    ["alone", { p, g, lr }, {}, [after(g)]],
    ["with a decay", { p, g, lr }, { weight_decay: 0.5 }, [after(decayed)]],
    ["scaled", { p, g, lr, coefficient }, {}, [after(scaled)]],
    ["with a buffer", { p, g, lr, buffer }, { momentum: 0.9 }, [after(next(g)), next(g)]],
    [
      "of Nesterov",
      { p, g, lr, buffer },
      { momentum: 0.9, nesterov: true },
      [after(plus(g, times(next(g), number(0.9)))), next(g)],
    ],
  ])("%s", (_, operands, attributes, want) => {
    const found = want.map((_one, output) =>
      real("tallystick.sgd_step", operands, { ...plain, ...attributes }, output),
    );
    expect(found).toEqual(want);
  });
});

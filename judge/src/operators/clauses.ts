/** Real numbers that are not the lifting of a form: powers and optimizers (OPENING 10.9.2 to 10.9.4). */
import { FUNCTIONS, minus, negated, over, Pair, plus, root, times } from "../numbers/pairs.ts";
import type { Attributes } from "./attributes.ts";

/** The pairs of the operands that are there, by name. */
export type Given = ReadonlyMap<string, Pair>;

const number = (attributes: Attributes, name: string): Pair => {
  const held = attributes.get(name);
  if (typeof held !== "number") throw new Error(`no float ${name}`);
  return new Pair(held);
};

const one = new Pair(1);
const less = (x: Pair): Pair => new Pair(1 - x.x);

function operand(given: Given, name: string): Pair {
  const found = given.get(name);
  if (found === undefined) throw new Error(`no operand ${name}`);
  return found;
}

/** x^y (10.9.2). */
function power(given: Given, attributes: Attributes): Pair {
  const a = operand(given, "x");
  const y = Math.fround(number(attributes, "exponent").x);
  const isWhole = Math.abs(y) === Infinity || Number.isInteger(y);
  const isOdd = Number.isInteger(y) && y % 2 !== 0;
  if (!Number.isFinite(a.x)) return new Pair(NaN);
  if (a.x === 1 || y === 0) return one;
  if (a.x === 0) {
    const z = y > 0 ? 0 : y < 0 ? Infinity : y;
    return new Pair(isOdd && Object.is(a.x, -0) ? -z : z);
  }
  if (a.x < 0 && !isWhole) return new Pair(NaN);
  const { exp, log } = FUNCTIONS;
  if (exp === undefined || log === undefined) throw new Error("no exp and log");
  const value = exp(times(log(new Pair(Math.abs(a.x))), new Pair(y)));
  return a.x < 0 && isOdd ? negated(value) : value;
}

/** The gradient, scaled and with the decay that goes into it. */
function gradient(given: Given, attributes: Attributes, decays: boolean): Pair {
  const coefficient = given.get("coefficient");
  const g = operand(given, "g");
  const scaled = coefficient === undefined ? g : times(g, coefficient);
  const decay = number(attributes, "weight_decay");
  return decays && decay.x !== 0 ? plus(scaled, times(operand(given, "p"), decay)) : scaled;
}

/** Adam (10.9.3): p', m' or v'. */
const adam =
  (isAdamW: boolean) =>
  (given: Given, attributes: Attributes, output: number): Pair => {
    const [p, m, v, lr] = ["p", "m", "v", "lr"].map((name) => operand(given, name)) as [
      Pair, Pair, Pair, Pair,
    ]; // prettier-ignore
    const g = gradient(given, attributes, !isAdamW);
    const of = (name: string): Pair => number(attributes, name);
    const m1 = plus(m, times(minus(g, m), less(of("beta1"))));
    if (output === 1) return m1;
    const v1 = plus(times(v, of("beta2")), times(times(g, g), less(of("beta2"))));
    if (output === 2) return v1;
    const step = over(lr, minus(one, operand(given, "beta1_power")));
    const scale = root(minus(one, operand(given, "beta2_power")));
    const below = plus(over(root(v1), scale), of("eps"));
    const kept = isAdamW ? times(p, minus(one, times(lr, of("weight_decay")))) : p;
    return minus(kept, times(step, over(m1, below)));
  };

/** SGD (10.9.4): p' or buf'. */
function sgd(given: Given, attributes: Attributes, output: number): Pair {
  const g = gradient(given, attributes, true);
  const buffer = given.get("buffer");
  const momentum = number(attributes, "momentum");
  let u = g;
  if (buffer !== undefined) {
    const next = plus(times(buffer, momentum), times(g, less(number(attributes, "dampening"))));
    if (output === 1) return next;
    u = attributes.get("nesterov") === true ? plus(g, times(next, momentum)) : next;
  }
  return minus(operand(given, "p"), times(operand(given, "lr"), u));
}

/** The formula of an operator whose `real_clause` the table names. */
export const CLAUSES: Readonly<
  Record<string, (given: Given, attributes: Attributes, output: number) => Pair>
> = {
  "aten.pow.Tensor_Scalar": power,
  "tallystick.adam_step": adam(false),
  "tallystick.adamw_step": adam(true),
  "tallystick.sgd_step": sgd,
};

/** `replay/1` in its published form (NUMERICS 14.9 to 14.11, OPENING 9). */
import { bitsOf, numberOf, type Bits } from "../numbers/bits.ts";
import { Pair } from "../numbers/pairs.ts";
import { exactly, type Dyadic } from "../numbers/rounding.ts";
import { boundOf, boundSums } from "./bounded.ts";
import type { Call, Reading } from "./call.ts";
import { CLAUSES } from "./clauses.ts";
import { Evaluation, pairOf } from "./graph.ts";
import { elementsOf } from "./forms.ts";
import { Grid, minusOf, sumOf } from "./grid.ts";
import { agreedPair, Lifted, localReal } from "./lifted.ts";
import type { Opened } from "./parts.ts";
import {
  refusing,
  type Entry,
  type Logged,
  type PublishedReach,
  type Quantity,
  type WithoutReach,
} from "./quantity.ts";
import { exactSum, flagsOf, roundedRecord, sumOfRecord } from "./rounded.ts";
import { lastTerm, type SumElement } from "./sums.ts";
import type { Form } from "./table.ts";

/** The reach from v − E to v + E (OPENING 9.4). */
export function reachOf(v: Dyadic, E: Dyadic, B: number): PublishedReach {
  const grid = new Grid(B);
  const [low, high] = [sumOf(v, minusOf(E)), sumOf(v, E)];
  const ends = ([0, 1, 2] as const).map((entry) => [
    grid.towards(low, entry),
    grid.towards(high, entry),
  ]);
  const of = (entry: Entry): [number, number] => {
    const [least = 0, greatest = 0] = ends[entry] ?? [];
    return [least, greatest];
  };
  const [least, greatest] = of(1);
  return {
    form: "published",
    isChoice: greatest > least,
    middle: bitsOf("f32", grid.element(grid.nearest(v))),
    holds: (claim, entry) => {
      const x = Number(numberOf("f32", claim));
      const [from, to] = of(entry);
      return grid.has(x) && from <= grid.count(x) && grid.count(x) <= to;
    },
    isForged: (entry) => {
      const [from, to] = of(entry);
      return to < least || from > greatest;
    },
  };
}

/** The logged quantity `"R(x)"` over what gives the pair. */
export function loggedPair(need: Quantity, B: number): Logged {
  // eslint-disable-next-line require-yield -- nothing is read beyond the agreed pair
  const reach = function* ([bits = 0n]: readonly Bits[]): Reading<PublishedReach | WithoutReach> {
    const { x, e } = agreedPair(need, bits);
    if (!Number.isFinite(x) || !Number.isFinite(e)) {
      return { form: "none", value: bitsOf("f32", Math.fround(x)) };
    }
    return reachOf(exactly(x), exactly(e), B);
  };
  return {
    kind: "logged",
    dtype: "f32",
    name: "R(x)",
    needs: [need],
    reach: (needs) => refusing(reach(needs)),
  };
}

/** The logged quantity of a rounded operator that is no mean (OPENING 8.3.1). */
export function loggedSum(element: SumElement, B: number): Logged {
  const last = lastTerm(element);
  const goesOn = element.over !== undefined && last === undefined;
  const reach = function* ([record = 0n, ...sums]: readonly Bits[]): Reading<
    PublishedReach | WithoutReach
  > {
    if (goesOn) return { form: "none", value: undefined };
    if (flagsOf(record) !== 0n) {
      return { form: "none", value: bitsOf("f32", roundedRecord(record, B)) };
    }
    const { opened, sum } = element;
    const added = last === undefined ? undefined : Number(yield* opened.evaluation().single(last));
    const K = opened.count(sum.count) + (added === undefined ? 0 : 1);
    const numbers = sums.map((bits) => Number(numberOf("f64", bits)));
    return reachOf(sumOfRecord(record), exactly(boundOf(K, numbers, added)), B);
  };
  return {
    kind: "logged",
    dtype: "f32",
    name: "R(exact sum)",
    needs: [exactSum(element), ...boundSums(element)],
    reach: (needs) => refusing(reach(needs)),
  };
}

/** The pair of an operator of one element of each operand (OPENING 10.9). */
export function formPair(call: Call, form: Form, output: number, element: bigint): Quantity {
  const formula = function* (): Reading<Pair> {
    const { operands, elements } = yield* elementsOf(call, output, element);
    const clause = CLAUSES[call.operator.name];
    if (clause !== undefined) {
      const given = new Map<string, Pair>();
      for (const [name, bits] of elements) {
        const { dtype } = operands.type(name);
        given.set(name, pairOf(numberOf(dtype, bits)));
      }
      return clause(given, call.attributes, output);
    }
    const part = (): never => {
      throw new Error("a form has no parts");
    };
    const { nodes } = form;
    const scene = { call, operands, output, nodes, element, terms: 0n, part, elements };
    return yield* new Evaluation({ ...scene, reals: true }).pair(form.outputs[output] ?? 0);
  };
  const name = call.operator.name === "aten.mse_loss_backward" ? "out" : "x";
  return localReal(name, [], formula);
}

/** The pair of an element that is made of parts. */
export function partPair(opened: Opened, number: number): Quantity {
  const lifted = new Lifted(opened);
  const [part] = opened.resolved(number);
  const isRandom = opened.call.operator.class === "random";
  return isRandom && part.kind === "local" ? lifted.local(part, "x") : lifted.quantity(number);
}

/** Quantities of `ordered/1` in the real numbers (OPENING 9.2, 9.3). */
import { numberOf, type Bits, type Scalar } from "../numbers/bits.ts";
import { bitsOfPair, Pair, pairOfBits, widened } from "../numbers/pairs.ts";
import type { Reading } from "./call.ts";
import { type Column, type Evaluation } from "./graph.ts";
import { Opened, range, STRETCH, type Of } from "./parts.ts";
import { isSet } from "./primitives.ts";
import { refusing, type Chain, type Quantity } from "./quantity.ts";
import type { Part } from "./table.ts";

/** An agreed need in a formula on pairs: a pair, or the number of an extremum (OPENING 9.3). */
export function agreedPair(need: Pick<Quantity, "dtype">, bits: Bits): Pair {
  if (need.dtype === "real") return pairOfBits(bits);
  return new Pair(Number(numberOf(need.dtype === "f64" ? "f64" : "f32", bits)));
}

/** A local quantity `real`. */
export function localReal(
  name: string,
  needs: readonly Quantity[],
  formula: (agreed: readonly Bits[]) => Reading<Pair>,
): Quantity {
  const value = function* (agreed: readonly Bits[]): Reading<Bits> {
    return bitsOfPair(yield* formula(agreed));
  };
  return { kind: "local", dtype: "real", name, needs, value: (agreed) => refusing(value(agreed)) };
}

export class Lifted {
  constructor(readonly opened: Opened) {}

  /** The lifted quantity of a part; an extremum, and what is i64, is itself. */
  quantity(number: number): Quantity {
    const [part, own] = this.opened.resolved(number);
    if (part.kind === "extremum" || part.dtype === "i64") return this.opened.quantity(own);
    switch (part.kind) {
      case "local":
        return this.local(part, this.opened.nameOf(part));
      case "tree":
        return this.#tree(part);
      case "chain":
        return this.#chain(part);
      case "terms":
        return this.#terms(part);
      default:
        throw new Error(`${part.kind} is not lifted`);
    }
  }

  #over(part: Part, values: readonly number[]) {
    const numbers = this.opened.needed(part, values);
    const needs = numbers.map((number) => this.quantity(number));
    const given = (agreed: readonly Bits[], terms?: Column): Evaluation => {
      const known = numbers.map((number, k): [number, Bits | Pair] => {
        const bits = agreed[k] ?? 0n;
        return [number, needs[k]?.dtype === "real" ? pairOfBits(bits) : bits];
      });
      return this.opened.evaluation(terms, new Map(known), true);
    };
    return { needs, given };
  }

  local(part: Of<"local">, name: string): Quantity {
    const { needs, given } = this.#over(part, [part.value]);
    const formula = function* (this: Lifted, agreed: readonly Bits[]): Reading<Pair> {
      const evaluation = given(agreed);
      yield* this.opened.readFirst(part, evaluation);
      return yield* evaluation.pair(part.value);
    };
    return localReal(name, needs, (agreed) => formula.call(this, agreed));
  }

  #tree(part: Of<"tree">): Quantity {
    const { needs, given } = this.#over(part, [part.value]);
    const count = this.opened.count(part.count);
    const terms = function* (this: Lifted, index: bigint[], agreed: readonly Bits[]) {
      const evaluation = given(agreed, index);
      yield* this.opened.readFirst(part, evaluation);
      const pairs = yield* evaluation.pairs(part.value);
      return pairs.map((pair) => bitsOfPair(widened(pair, count)));
    };
    return {
      kind: "tree",
      dtype: "real",
      name: this.opened.nameOf(part),
      needs,
      count,
      terms: (first, last, agreed) => refusing(terms.call(this, range(first, last), agreed)),
    };
  }

  /** Values are added to x and to e, one after the other (OPENING 9.3.3). */
  #chain(part: Of<"chain">): Quantity {
    const { opened } = this;
    const ordered = opened.quantity(opened.parts.parts.indexOf(part));
    const isRead = opened.node(part.start).kind === "read";
    if (ordered.kind === "local") {
      const start = (): Reading<Pair> =>
        opened.evaluation(undefined, undefined, true).pair(part.start);
      return localReal(ordered.name, [], start);
    }
    const { kept } = part;
    const values = [part.start, ...(kept === undefined ? [] : [kept]), part.value];
    const { needs, given } = this.#over(part, values);
    const count = opened.count(part.count);
    const links = function* (low: number, high: number, state: Bits, agreed: readonly Bits[]) {
      const index = range(low, high);
      const evaluation = given(agreed, index);
      let total =
        isRead && low === 0
          ? widened(yield* evaluation.pair(part.start), count)
          : pairOfBits(state);
      let own = [...index.keys()];
      if (kept !== undefined) {
        const holds: readonly Scalar[] = yield* evaluation.each(kept);
        own = own.filter((term) => isSet(holds[term] ?? 0));
      }
      const added = own.length === 0 ? [] : yield* evaluation.among(own).pairs(part.value);
      for (const one of added) {
        const more = widened(one, count);
        total = new Pair(total.x + more.x, total.e + more.e);
      }
      return bitsOfPair(total);
    };
    const chain = ordered as Chain;
    return {
      kind: "chain",
      dtype: "real",
      name: chain.name,
      needs,
      count,
      stretch: STRETCH,
      weight: 1,
      start: bitsOfPair(new Pair(Number(numberOf("f32", chain.start)))),
      links: (low, high, state, agreed) => refusing(links(low, high, state, agreed)),
    };
  }

  /** Term i is a quantity of its own, which needs the lifted term and widens it (OPENING 9.2). */
  #terms(part: Of<"terms">): Quantity {
    const { call, parts, output } = this.opened;
    const count = this.opened.count(part.count);
    const term = (number: number): Quantity => {
      const own = BigInt(number);
      const below = new Lifted(new Opened(call, parts, output, own, own)).quantity(part.of);
      // eslint-disable-next-line require-yield -- a formula that reads nothing
      const formula = function* ([agreed = 0n]: readonly Bits[]): Reading<Pair> {
        return widened(agreedPair(below, agreed), count);
      };
      return localReal(`term ${number}`, [below], formula);
    };
    const name = this.opened.nameOf(part);
    return { kind: "terms", dtype: "real", name, needs: [], count, term };
  }
}

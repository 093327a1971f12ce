/** `exact/1` (NUMERICS 17, OPENING 12): a DOT of integers, block by block. */
import { bitsOf, bitsOfF64, f32OfBits, f64OfBits, numberOf, type Bits } from "../numbers/bits.ts";
import { bitLength, exactly, roundToF64, shiftToEven } from "../numbers/rounding.ts";
import type { Reading } from "./call.ts";
import { CHUNK, range, type Of, type Opened } from "./parts.ts";
import { refusing, type Chain, type Local } from "./quantity.ts";
import { following, type SumElement } from "./sums.ts";
import type { Factor } from "./table.ts";

/** The length of a block for each B (NUMERICS 17.1). */
const LENGTHS: ReadonlyMap<number, number> = new Map([
  [8, 256],
  [15, 1024],
  [22, 2048],
]);

const INFINITE = 0x7f800000;

/** The record `blk` (OPENING 12.3). */
interface Block {
  readonly total: number;
  readonly sum: bigint;
  readonly mu: number;
  readonly nu: number;
}

const unpacked = (bits: Bits): Block => ({
  total: f64OfBits(BigInt.asUintN(64, bits)),
  sum: BigInt.asIntN(64, bits >> 64n),
  mu: Number(BigInt.asUintN(32, bits >> 128n)),
  nu: Number(BigInt.asUintN(32, bits >> 160n)),
});

const packed = ({ total, sum, mu, nu }: Block): Bits =>
  bitsOfF64(total) | (BigInt.asUintN(64, sum) << 64n) | (BigInt(mu) << 128n) | (BigInt(nu) << 160n);

/** Bits of |x|. */
const magnitude = (x: number): number => Number(bitsOf("f32", Math.abs(x)));

/** The least integer e with μ < 2^e, of the bits of a magnitude that is finite and not 0. */
function exponent(bits: number): number {
  const { n, q } = exactly(f32OfBits(bits));
  return bitLength(n) + q;
}

/** m(x) of NUMERICS 17.4 for a group of magnitude `mu`, cut to its range (OPENING 12.4). */
function integerOf(x: number, mu: number, B: number): bigint {
  if (mu === 0 || mu >= INFINITE || !Number.isFinite(x)) return 0n;
  const { n, q } = exactly(Math.abs(x));
  const whole = shiftToEven(n, -(q + B - 1 - exponent(mu)));
  const most = 1n << BigInt(B - 1);
  if (x < 0) return whole > most ? -most : -whole;
  const greatest = B === 8 ? most - 1n : most;
  return whole > greatest ? greatest : whole;
}

/** The value of a block (OPENING 12.5). */
function blockValue({ sum, mu, nu }: Block, B: number): number {
  if (mu >= INFINITE || nu >= INFINITE) return NaN;
  if (mu === 0 || nu === 0) return 0;
  const { n, q } = exactly(Number(sum));
  return roundToF64(n, q + exponent(mu) + exponent(nu) - 2 * (B - 1));
}

/** Where a link stands: its phase, and what it covers. */
interface Link {
  readonly phase: 0 | 1 | 2;
  /** The first link of its segment. */
  readonly opens: boolean;
  /** Numbers over the whole contraction, of members or of terms. */
  readonly first: number;
  readonly last: number;
  /** A block ends after its last term, if these are terms. */
  readonly ends: boolean;
}

/** The links of the segments (NUMERICS 17.2, OPENING 12.2). */
class Segments {
  readonly count: number;
  readonly #outer: number;
  readonly #each: readonly [number, number, number];
  readonly #size: number;
  readonly #full: number;

  constructor(
    opened: Opened,
    dot: Of<"dot">,
    readonly length: number,
  ) {
    const inner = opened.count(dot.inner);
    const [left, right] = dot.factors;
    this.#outer = inner === 0 ? 0 : opened.count(dot.count) / inner;
    this.#each = [opened.count(left.each), opened.count(right.each), inner];
    this.#size = Math.max(1, Math.floor(length / Math.max(inner, 1)));
    this.#full = this.#links(this.#size);
    const whole = Math.floor(this.#outer / this.#size);
    this.count = whole * this.#full + this.#links(this.#outer - whole * this.#size);
  }

  /** Links of a segment of so many outer values. */
  #links(outer: number): number {
    return this.#each.reduce((sum, each) => sum + Math.ceil((outer * each) / CHUNK), 0);
  }

  link(number: number): Link {
    const segment = this.#full === 0 ? 0 : Math.floor(number / this.#full);
    const start = segment * this.#size;
    const outer = Math.min(this.#size, this.#outer - start);
    let rest = number - segment * this.#full;
    const opens = rest === 0;
    for (const phase of [0, 1, 2] as const) {
      const each = this.#each[phase];
      const own = Math.ceil((outer * each) / CHUNK);
      if (rest < own) {
        const end = Math.min(CHUNK * (rest + 1), outer * each);
        const first = start * each + CHUNK * rest;
        const ends = end % this.length === 0 || end === outer * each;
        return { phase, opens, first, last: start * each + end, ends };
      }
      rest -= own;
    }
    throw new Error(`no link ${number}`);
  }
}

/** The chain "blocks". */
function blocks(opened: Opened, dot: Of<"dot">, B: number): Chain {
  const length = LENGTHS.get(B);
  if (length === undefined) throw new Error(`no exact/1 of ${B} bits`);
  const segments = new Segments(opened, dot, length);
  const largest = function* (factor: Factor, link: Link, before: number): Reading<number> {
    const evaluation = opened.evaluation(range(link.first, link.last));
    const members = yield* evaluation.each(factor.member);
    return members.reduce<number>((most, x) => Math.max(most, magnitude(Number(x))), before);
  };
  const after = function* (block: Block, link: Link): Reading<Block> {
    const [left, right] = dot.factors;
    if (link.phase === 0) {
      const from = link.opens ? { ...block, sum: 0n, mu: 0, nu: 0 } : block;
      return { ...from, mu: yield* largest(left, link, from.mu) };
    }
    if (link.phase === 1) return { ...block, nu: yield* largest(right, link, block.nu) };
    const [a, b] = yield* opened.factors(dot, link.first, link.last);
    const more = a.reduce(
      (sum, x, k) => sum + integerOf(x, block.mu, B) * integerOf(b[k] ?? 0, block.nu, B),
      block.sum,
    );
    const next = { ...block, sum: BigInt.asIntN(64, more) };
    return link.ends ? { ...next, total: next.total + blockValue(next, B), sum: 0n } : next;
  };
  const links = function* (low: number, high: number, state: Bits): Reading<Bits> {
    let block = unpacked(state);
    for (let number = low; number < high; number++) {
      block = yield* after(block, segments.link(number));
    }
    return packed(block);
  };
  return {
    kind: "chain",
    dtype: "blk",
    name: "blocks",
    needs: [],
    count: segments.count,
    stretch: 1,
    weight: CHUNK,
    start: 0n,
    links: (low, high, state) => refusing(links(low, high, state)),
  };
}

/** The quantity of an element of a DOT under `exact/1` (OPENING 12.1, 12.6). */
export function exactQuantity(element: SumElement, dot: Of<"dot">, B: number): Local {
  const { opened } = element;
  const value = function* (block: Bits, other: Bits): Reading<Bits> {
    const { total } = unpacked(block);
    const own = Number.isNaN(total) ? Number(numberOf("f32", other)) : Math.fround(total);
    return yield* following(element, bitsOf("f32", own));
  };
  return {
    kind: "local",
    dtype: "f32",
    name: "RN32(total)",
    needs: [blocks(opened, dot, B), opened.dot(dot)],
    value: ([block = 0n, other = 0n]) => refusing(value(block, other)),
  };
}

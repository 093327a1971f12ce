/**
 * Quantities (OPENING 2): what an element of an output is made of, and what a referee executes of
 * it. A quantity follows from the call alone. What needs elements of operands is a *reading*: a
 * generator that yields reads and is sent the bits of the elements, in the order of OPENING 5.
 *
 * Values are bits, of any dtype of OPENING 1.3: an unsigned whole number, little-endian.
 */
import { bitsOf, numberOf, type Bits, type Dtype } from "../numbers/bits.ts";
import { RefusedByClause, type Reading } from "./call.ts";

/** The dtypes of OPENING 1.3. */
export type QuantityDtype = Dtype | "acc" | "blk" | "real";

/** A clause refuses the elements that were read (OPENING 5.4): both parties are convicted. */
export interface Refusal {
  readonly refused: string;
}

export type Outcome<T> = T | Refusal;

export const isRefusal = (outcome: unknown): outcome is Refusal =>
  typeof outcome === "object" && outcome !== null && "refused" in outcome;

interface Common {
  readonly dtype: QuantityDtype;
  readonly name: string;
  /** What the parties agree on first, in order (OPENING 2.2). */
  readonly needs: readonly Quantity[];
}

/** A formula over needs and a handful of elements. */
export interface Local extends Common {
  readonly kind: "local";
  value(needs: readonly Bits[]): Reading<Outcome<Bits>>;
}

/** A sum of terms, each a formula. */
export interface Tree extends Common {
  readonly kind: "tree";
  readonly dtype: Dtype | "real";
  readonly count: number;
  /** The values of the terms first to last − 1. */
  terms(first: number, last: number, needs: readonly Bits[]): Reading<Outcome<readonly Bits[]>>;
}

/** A sum of terms, each a quantity. */
export interface Terms extends Common {
  readonly kind: "terms";
  readonly dtype: Dtype | "real";
  readonly count: number;
  term(number: number): Quantity;
}

/** Links, one after the other, from a start. */
export interface Chain extends Common {
  readonly kind: "chain";
  readonly count: number;
  /** The most links that are executed at once, and the terms that each counts as (OPENING 2.6). */
  readonly stretch: number;
  readonly weight: number;
  readonly start: Bits;
  /** The state after the links low to high − 1, from the state before them. */
  links(low: number, high: number, state: Bits, needs: readonly Bits[]): Reading<Outcome<Bits>>;
}

/** The largest, the least, or the lowest index of a largest of `count` elements. */
export interface Extremum extends Common {
  readonly kind: "extremum";
  readonly extreme: "max" | "min" | "argmax";
  readonly count: number;
  /** The dtype of the elements; that of the quantity is i64 of an argmax. */
  readonly of: Dtype;
  /** The elements of these numbers, in one read. */
  elements(numbers: readonly number[], needs: readonly Bits[]): Reading<Outcome<readonly Bits[]>>;
}

/** A direction of the bounded form's entry (NUMERICS 14.2): 0 down, 1 up. */
export type Direction = 0 | 1;

/** What entries of the parties' logs may make of an element whose needs are agreed (OPENING 8.6). */
export interface Reach {
  readonly form: "bounded";
  /** V has two elements, so that an entry leaves a choice (OPENING 8.6.5). */
  readonly isChoice: boolean;
  /** The due value of a party with this entry, or without one (OPENING 8.6.4). */
  due(entry: Direction | undefined): Bits;
  /** Whether an entry is forged (OPENING 8.7.1). */
  isForged(entry: Direction): boolean;
}

/** An entry of the published form (NUMERICS 14.9); a party without one has 1. */
export type Entry = 0 | 1 | 2;

/** The same of the published form (OPENING 9.4 to 9.6). */
export interface PublishedReach {
  readonly form: "published";
  /** V(1) has more than one element, so that an entry leaves a choice (OPENING 9.5.1). */
  readonly isChoice: boolean;
  /** R of the middle of the reach, a zero being +0. */
  readonly middle: Bits;
  /** Whether a claim is in V(c). */
  holds(claim: Bits, entry: Entry): boolean;
  /** V(c) and V(1) have no element in common (OPENING 9.6). */
  isForged(entry: Entry): boolean;
}

/** An element without a reach (OPENING 9.4): no entry and no value of it convicts. */
export interface WithoutReach {
  readonly form: "none";
  /** What a verdict shows of it (OPENING 9.7); undefined where that needs elements to be read. */
  readonly value: Bits | undefined;
}

/** What the party's own log allows. */
export interface Logged extends Common {
  readonly kind: "logged";
  reach(needs: readonly Bits[]): Reading<Outcome<Reach | PublishedReach | WithoutReach>>;
}

export type Quantity = Local | Tree | Terms | Chain | Extremum | Logged;

/** A reading whose refusal is its outcome. */
export function* refusing<T>(reading: Reading<T>): Reading<Outcome<T>> {
  try {
    return yield* reading;
  } catch (error) {
    if (error instanceof RefusedByClause) return { refused: error.message };
    throw error;
  }
}

/** Values that one block has (OPENING 1.8). */
export const BLOCK = 256;

/**
 * The block of at most 256 values (OPENING 2.7): 32 lanes that begin with −0, then halved
 * (NUMERICS 3.1). Of i64 the sum modulo 2^64. The value of no terms is +0 (OPENING 2.4).
 */
export function blockOf(dtype: Dtype | "real", values: readonly Bits[]): Bits {
  if (values.length > BLOCK) throw new Error(`a block of ${values.length} values`);
  if (dtype === "real") {
    // Of the values and of the bounds, as they were stated (OPENING 10.6).
    const halves = [0n, 64n].map((from) =>
      blockOf(
        "f64",
        values.map((bits) => BigInt.asUintN(64, bits >> from)),
      ),
    );
    return (halves[0] ?? 0n) | ((halves[1] ?? 0n) << 64n);
  }
  if (values.length === 0) return 0n;
  if (dtype === "i64")
    return BigInt.asUintN(
      64,
      values.reduce((a, b) => a + b, 0n),
    );
  if (dtype !== "f32" && dtype !== "f64") throw new Error(`no sum of ${dtype}`);
  const round = dtype === "f32" ? Math.fround : (x: number): number => x;
  const lanes = new Float64Array(32).fill(-0);
  values.forEach((bits, i) => {
    lanes[i % 32] = round((lanes[i % 32] ?? 0) + Number(numberOf(dtype, bits)));
  });
  for (let half = 16; half >= 1; half /= 2) {
    for (let lane = 0; lane < half; lane++) {
      lanes[lane] = round((lanes[lane] ?? 0) + (lanes[lane + half] ?? 0));
    }
  }
  return bitsOf(dtype, lanes[0] ?? 0);
}

/**
 * Which of two elements is the better one, the element of the lower index first (OPENING 2.5):
 * 0 or 1. The first one where neither is better.
 */
export function better(
  quantity: Pick<Extremum, "extreme" | "of">,
  first: Bits,
  second: Bits,
): 0 | 1 {
  const { extreme, of } = quantity;
  const [a, b] = [numberOf(of, first), numberOf(of, second)];
  if (Number.isNaN(a)) return 0;
  if (Number.isNaN(b)) return 1;
  if (a === 0 && b === 0 && extreme !== "argmax") {
    const worse = extreme === "max" ? -0 : 0;
    return Object.is(a, worse) && !Object.is(b, worse) ? 1 : 0;
  }
  return (extreme === "min" ? b < a : b > a) ? 1 : 0;
}

/** Elements of a node's operands, opened by party 0 against the agreed digests (PROTOCOL 6.5). */
import type { Bits } from "../numbers/bits.ts";
import { isRefusal, type Outcome, type Read, type Reading } from "../operators/index.ts";
import { LIMITS } from "../limits.ts";
import {
  canonicalValues,
  elementsOf,
  LEAF_BYTES,
  opens,
  readOpening,
  widthOf,
  type TensorOpening,
  type TensorType,
} from "../tensors.ts";
import type { Play } from "./play.ts";
import { askOne, convict, convictBoth, PARTIES } from "./rounds.ts";
import { bitsOfBytes } from "./values.ts";

/** An operand as both records state it. */
export interface AgreedOperand {
  readonly type: TensorType;
  readonly digest: Uint8Array;
}

/** The operands of a node, absent ones included, and the leaves of them that are open. */
export class Openings {
  readonly #leaves = new Map<number, Map<number, Uint8Array>>();

  constructor(
    readonly step: number,
    readonly node: number,
    readonly operands: readonly (AgreedOperand | null)[],
  ) {}

  operand(number: number): AgreedOperand {
    const found = this.operands[number];
    if (!found) throw new Error(`a read of operand ${number}, which is not there`);
    return found;
  }

  /** The open leaves of an operand, by their numbers (OPENING 5.3). */
  leaves(operand: number): Map<number, Uint8Array> {
    const found = this.#leaves.get(operand) ?? new Map<number, Uint8Array>();
    this.#leaves.set(operand, found);
    return found;
  }
}

/** The bits of elements of one operand at row-major positions, opened as far as they are not yet. */
export function* openElements(
  openings: Openings,
  operand: number,
  positions: readonly bigint[],
): Play<readonly Bits[]> {
  if (positions.length === 0) return [];
  const { type } = openings.operand(operand);
  const count = BigInt(elementsOf(type));
  // OPENING 5.2: a position outside convicts both.
  if (positions.some((at) => at < 0n || at >= count)) throw convictBoth("6.5", "3");
  const width = widthOf(type.dtype);
  const places = positions.map((at) => Number(at) * width);
  const leafOf = (place: number): number => Math.floor(place / LEAF_BYTES);
  const open = openings.leaves(operand);
  const wanted = [...new Set(places.map(leafOf))].filter((leaf) => !open.has(leaf));
  if (wanted.length > 0) yield* openLeaves(openings, operand, wanted);
  return places.map((place) => {
    const leaf = leafOf(place);
    const from = place - leaf * LEAF_BYTES;
    return bitsOfBytes((open.get(leaf) ?? new Uint8Array()).subarray(from, from + width));
  });
}

/** Asks party 0 for leaves (kind 11) and judges the opening (OPENING 5.3.1). */
function* openLeaves(openings: Openings, operand: number, wanted: number[]): Play<void> {
  const { step, node } = openings;
  const { type, digest } = openings.operand(operand);
  const leaves = wanted.sort((a, b) => a - b);
  const [party] = PARTIES;
  const opening: TensorOpening = yield* askOne(
    party,
    { kind: "opening", step, node, operand, leaves },
    (reader) => readOpening(reader.blob(LIMITS.openingBytes, "an opening"), type, leaves),
  );
  if (!opens(opening, digest)) throw convict(party, "6.5", null);
  for (const { index, bytes } of opening.leaves) {
    if (!canonicalValues(type.dtype, bytes)) throw convictBoth("6.5", "3");
    openings.leaves(operand).set(index, bytes);
  }
}

/** Makes the reads of a formula; a refusal convicts both (OPENING 5.4). */
export function* execute<T>(openings: Openings, reading: Reading<Outcome<T>>): Play<T> {
  let step: IteratorResult<Read, Outcome<T>> = reading.next();
  while (step.done !== true) {
    const { operand, positions } = step.value;
    step = reading.next(yield* openElements(openings, operand, positions));
  }
  const outcome = step.value;
  if (isRefusal(outcome)) throw convictBoth("6.5", "3");
  return outcome;
}

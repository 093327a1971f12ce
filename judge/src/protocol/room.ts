/** The room that a game's true answers have in the evidence (PROTOCOL 2.6.1, 8.5). */
import type { Terms } from "../job/terms.ts";
import { LIMITS } from "../limits.ts";
import { FRAME_BYTES } from "./bounds.ts";
import { MESSAGE_HEAD_BYTES, type Bounds } from "./evidence.ts";
import { writeQuery } from "./messages.ts";
import { WithoutVerdict, type Asked } from "./play.ts";
import { answerLength } from "./sizes.ts";

export class Room {
  #left: number;

  constructor(
    readonly terms: Terms,
    bounds: Bounds,
    readonly checkpoints: readonly [number, number],
  ) {
    this.#left = bounds.bytes - FRAME_BYTES;
  }

  /** Ends the game without a verdict where a true answer is too long, or there is no room left. */
  ask(asked: readonly Asked[], step: number): void {
    for (const { party, query } of asked) {
      const length = answerLength(this.terms, query, this.checkpoints[party], step);
      if (length > LIMITS.answerBytes || writeQuery(query).length > LIMITS.queryBytes) {
        throw new WithoutVerdict("a true answer would be over its limit");
      }
      this.#left -= MESSAGE_HEAD_BYTES + length;
    }
    if (this.#left < 0) throw new WithoutVerdict("the answers would have no room in the evidence");
  }
}

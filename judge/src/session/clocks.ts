/** A party's clock in a game (PROTOCOL 11.3 to 11.5.2). */

import { gameTime, type Rules } from "./rules.ts";

export class Clock {
  readonly #extension: bigint;
  #left: bigint;
  #deadline: bigint | null = null;

  constructor(rules: Rules) {
    this.#extension = rules.extension;
    this.#left = gameTime(rules);
  }

  /** The time until which an answer is in time; null where none is owed (11.5). */
  get deadline(): bigint | null {
    return this.#deadline;
  }

  /** The party is asked: it has its budget's rest, or the extension if that is more (11.4). */
  start(time: bigint): void {
    if (this.#left < this.#extension) this.#left = this.#extension;
    this.#deadline = time + this.#left;
  }

  /** The party has answered, or its time is over. */
  stop(time: bigint): void {
    if (this.#deadline === null) throw new Error("a clock that does not run");
    this.#left = this.#deadline > time ? this.#deadline - time : 0n;
    this.#deadline = null;
  }

  /** The referee was absent: what is open is open for so long more (11.5.2). */
  extend(absence: bigint): void {
    if (this.#deadline !== null) this.#deadline += absence;
  }
}

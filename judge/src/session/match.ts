/** A game of a session, entry by entry (PROTOCOL 10.5, 11.3 to 11.5, 12.2 kinds 6 to 8, 10, 11). */

import type { ReadAnswer } from "../protocol/messages.ts";
import type { Conviction } from "../protocol/play.ts";
import type { Party } from "../protocol/queries.ts";
import { PARTIES } from "../protocol/rounds.ts";
import { Clock } from "./clocks.ts";
import { deviates, logged } from "./deviation.ts";
import type { Said } from "./entries.ts";
import type { Rules } from "./rules.ts";
import type { Member } from "./sides.ts";

/** How a game ended: 0 convictions, 1 undecided, 2 without a verdict (12.2). */
export interface Ending {
  readonly outcome: 0 | 1 | 2;
  readonly convictions: readonly Conviction[];
}

/** The bits of the convicted parties: 1 for party 0, 2 for party 1 (12.2). */
export function convictedBits({ convictions }: Ending): number {
  return convictions.reduce((bits, { party }) => bits | (1 << party), 0);
}

/** What a match needs of the game that is played in it. */
export interface Game {
  /** The queries of the round that is open, party 0's first; none when the game has ended. */
  readonly open: readonly { readonly party: Party; readonly query: Uint8Array }[];
  readonly ending: Ending | null;
  /**
   * Reads a party's signed answer; refuses what answers neither its open query, nor an earlier one
   * in another way (2.6, 2.9).
   */
  receive(party: Party, message: Uint8Array): ReadAnswer & { readonly isSecond: boolean };
  /** Judges the open round by its answers, in the order of its queries. */
  judge(answers: readonly ReadAnswer[]): void;
  /** Refuses an envelope that is no forfeit for the party's open query (2.10). */
  requireForfeit(party: Party, envelope: Uint8Array): void;
}

/** A party's place in a match, as it stands in the open round. */
class Seat {
  readonly clock: Clock;
  asked = false;
  answer: ReadAnswer | null = null;
  forfeited = false;

  constructor(rules: Rules) {
    this.clock = new Clock(rules);
  }

  get owes(): boolean {
    return this.asked && this.answer === null && !this.forfeited;
  }

  nextRound(): void {
    this.asked = false;
    this.answer = null;
  }
}

export class Match {
  readonly number: number;
  readonly members: readonly [Member, Member];
  readonly #begin: () => Game;
  readonly #seats: readonly [Seat, Seat];
  #game: Game | null = null;
  #ending: Ending | null = null;
  #announced = false;

  constructor(number: number, members: readonly [Member, Member], rules: Rules, begin: () => Game) {
    this.number = number;
    this.members = members;
    this.#begin = begin;
    this.#seats = [new Seat(rules), new Seat(rules)];
  }

  /** The ending, once the log has the verdict. */
  get verdict(): Ending | null {
    return this.#announced ? this.#ending : null;
  }

  /** The entry that follows in this game; null where it waits for answers, or is over (12.4). */
  get following(): Said | null {
    const game = this.number;
    if (this.#game === null) {
      const [a, b] = this.members;
      return { kind: "game", game, keys: [a.commitment.signer.raw, b.commitment.signer.raw] };
    }
    if (this.#ending !== null) {
      if (this.#announced) return null;
      const convicted = convictedBits(this.#ending);
      return { kind: "verdict", game, outcome: this.#ending.outcome, convicted };
    }
    const next = this.#game.open.find(({ party }) => !this.#seats[party].asked);
    return next === undefined ? null : { kind: "asked", game, ...next };
  }

  /** The parties whose clocks run, and until when. */
  get deadlines(): { party: Party; deadline: bigint }[] {
    if (this.#ending !== null) return [];
    return PARTIES.flatMap((party) => {
      const { deadline } = this.#seats[party].clock;
      return deadline === null ? [] : [{ party, deadline }];
    });
  }

  extend(absence: bigint): void {
    for (const { clock } of this.#seats) clock.extend(absence);
  }

  /** The entry that followed is in the log. */
  followed(said: Said, time: bigint): void {
    if (said.kind === "asked") {
      this.#seats[said.party].asked = true;
      this.#seats[said.party].clock.start(time);
    } else if (said.kind === "game") {
      this.#game = this.#begin();
      this.#ending = this.#game.ending;
    } else {
      this.#announced = true;
    }
  }

  /** A party's answer; one that has no effect is a deviation (12.5). */
  answer(party: Party, message: Uint8Array, time: bigint): void {
    const seat = this.#seats[party];
    const game = this.#game;
    if (game === null || this.#ending !== null) throw deviates("an answer that has no effect");
    const answer = logged(() => game.receive(party, message));
    if (answer.isSecond) {
      // 11.5: after a forfeit no equivocation has an effect.
      if (this.#someForfeited) throw deviates("an answer that has no effect");
      this.#convict([{ party, clause: "2.9", case: null }]);
      return;
    }
    if (!seat.owes) throw deviates("an answer that has no effect");
    seat.answer = answer;
    seat.clock.stop(time);
    if (this.#someForfeited) this.#forfeitOwed();
    else this.#judge(game);
  }

  /** A forfeit of a party whose deadline has passed; one that is none is a deviation. */
  forfeit(party: Party, envelope: Uint8Array, time: bigint): void {
    logged(() => this.#game?.requireForfeit(party, envelope));
    this.#seats[party].forfeited = true;
    this.#seats[party].clock.stop(time);
    this.#forfeitOwed();
  }

  get #someForfeited(): boolean {
    return this.#seats.some(({ forfeited }) => forfeited);
  }

  /** After a forfeit the game ends when the other party owes nothing any more (11.5). */
  #forfeitOwed(): void {
    if (this.#seats.some(({ owes }) => owes)) return;
    const silent = PARTIES.filter((party) => this.#seats[party].forfeited);
    this.#convict(silent.map((party) => ({ party, clause: "2.10", case: null })));
  }

  #convict(convictions: readonly Conviction[]): void {
    this.#ending = { outcome: 0, convictions };
  }

  /** A round is judged when all its answers are there (1.2). */
  #judge(game: Game): void {
    const answers = game.open.flatMap(({ party }) => this.#seats[party].answer ?? []);
    if (answers.length < game.open.length) return;
    game.judge(answers);
    this.#ending = game.ending;
    for (const seat of this.#seats) seat.nextRound();
  }
}

/** Hands a game the messages of evidence, round by round (PROTOCOL 2.6 to 2.10, 8.3, 8.4). */
import { equalBytes } from "../bytes.ts";
import { refuse } from "../errors.ts";
import type { Terms } from "../job/terms.ts";
import { sameKey, type PublicKey } from "../signatures.ts";
import type { Evidence } from "./evidence.ts";
import { readForfeit, type Forfeit } from "./forfeit.ts";
import type { Found } from "./found.ts";
import { writeQuery, type ReadAnswer } from "./messages.ts";
import { Convicted, type Answer, type Asked, type Conviction, type Play } from "./play.ts";
import type { Party } from "./queries.ts";
import { convict, convictionOf, PARTIES } from "./rounds.ts";
import { Said } from "./said.ts";
import { Room } from "./room.ts";

/** What a party owes in a round, and has given. */
interface Owed {
  readonly party: Party;
  readonly query: Uint8Array;
  answer?: ReadAnswer;
}

export class Replay {
  rounds = 0;
  receivedBytes = 0;
  /** The referee on whose word the verdict rests, if it does. */
  referee: PublicKey | null = null;
  #at = 0;
  #forfeitsRead = false;
  readonly #room: Room;
  readonly #said = new Said();

  constructor(
    readonly evidence: Evidence,
    readonly terms: Terms,
    readonly referees: readonly PublicKey[],
  ) {
    const [a, b] = evidence.commitments;
    this.#room = new Room(terms, evidence.bounds, [a.checkpoints, b.checkpoints]);
  }

  /** Plays a game to its end. Claims of an earlier round are not those of a conviction. */
  play<Result>(game: Play<Result>, found: Found): Result {
    let step = game.next();
    while (step.done !== true) {
      this.#room.ask(step.value, found.step ?? 0);
      const before = found.claimed;
      try {
        step = game.next(this.#round(step.value));
      } catch (error) {
        if (found.claimed === before) found.withoutClaims();
        throw error;
      }
    }
    return step.value;
  }

  /** The answers of a round, in the order of its queries. */
  #round(asked: readonly Asked[]): Answer[] {
    this.rounds++;
    const round = asked.map(({ party, query }): Owed => ({ party, query: writeQuery(query) }));
    while (round.some(({ answer }) => answer === undefined)) {
      if (!this.#answered(round)) throw this.#forfeited(round);
    }
    const wrong = round.flatMap(
      ({ party, answer }) => (answer && convictionOf(party, answer)) ?? [],
    );
    if (wrong.length > 0) throw new Convicted(wrong);
    return round.flatMap(({ answer }) => answer ?? []);
  }

  /**
   * Takes the next message, an answer that is owed; false where the messages end. Another answer to
   * a query that the party has answered before convicts (2.9, 8.4).
   */
  #answered(round: readonly Owed[]): boolean {
    const message = this.evidence.messages[this.#at];
    if (message === undefined) return false;
    const { bytes, party } = message;
    const owed = round.find((one) => one.party === party);
    const answer = this.#said.take(party, bytes, this.#answerer(party), owed?.query);
    this.#at++;
    this.receivedBytes += bytes.length;
    if (answer.isSecond) throw convict(party, "2.9", null);
    if (owed !== undefined) owed.answer = answer;
    return true;
  }

  #answerer(party: Party): Evidence["commitments"][number] {
    return this.evidence.commitments[party];
  }

  /** Convicts those who have let their time pass in this round (2.10). */
  #forfeited(round: readonly Owed[]): Convicted {
    const { commitments, forfeits } = this.evidence;
    const [a, b] = commitments;
    const game = { jobDigest: this.terms.jobDigest, runRoots: [a.runRoot, b.runRoot] } as const;
    if (forfeits.length === 0) throw refuse("messages are missing");
    const convictions: Conviction[] = [];
    for (const bytes of forfeits) {
      const forfeit = readForfeit(bytes, game);
      this.#refuseStranger(forfeit);
      const { party, query } = forfeit;
      const isOwed = round.some(
        (owed) => owed.party === party && !owed.answer && equalBytes(owed.query, query),
      );
      // Party 0's comes first (8.1), and each party has one.
      const isNext = convictions.every((one) => one.party < party);
      if (!isOwed || !isNext) throw refuse("a forfeit of a party that owes no such answer");
      convictions.push({ party, clause: "2.10", case: null });
      this.referee = forfeit.referee;
    }
    this.#forfeitsRead = true;
    return new Convicted(convictions);
  }

  /** 2.10 and 2.10.1: a forfeit is no party's, and of a referee who is believed. */
  #refuseStranger({ referee }: Forfeit): void {
    if (PARTIES.some((party) => sameKey(this.#answerer(party).signer, referee))) {
      throw refuse("a forfeit that a party has signed");
    }
    if (!this.referees.some((key) => sameKey(key, referee))) {
      throw refuse("a forfeit of a referee who is not believed");
    }
    if (this.referee !== null && !sameKey(this.referee, referee)) {
      throw refuse("forfeits of two referees");
    }
  }

  /** Refuses messages and forfeits that are left over (8.3). */
  end(): void {
    if (this.#at < this.evidence.messages.length) throw refuse("messages are left over");
    if (this.evidence.forfeits.length > 0 && !this.#forfeitsRead) {
      throw refuse("a forfeit after the end of the game");
    }
  }
}

/** The games of a session: those of PROTOCOL 1 to 6, one round at a time. */

import { equalBytes } from "../bytes.ts";
import { refuse } from "../errors.ts";
import type { Terms } from "../job/terms.ts";
import { Found } from "../protocol/found.ts";
import { readForfeit } from "../protocol/forfeit.ts";
import { type GameEnd, playGame } from "../protocol/game.ts";
import { type ReadAnswer, writeQuery } from "../protocol/messages.ts";
import { type Answer, type Asked, Convicted, type Play, WithoutVerdict } from "../protocol/play.ts";
import type { Party } from "../protocol/queries.ts";
import { convictionOf } from "../protocol/rounds.ts";
import { Said } from "../protocol/said.ts";
import { boundsOf } from "../protocol/bounds.ts";
import { Room } from "../protocol/room.ts";
import { sameKey } from "../signatures.ts";
import type { Begin } from "./fold.ts";
import type { Ending, Game } from "./match.ts";
import type { Rules } from "./rules.ts";
import type { Member } from "./sides.ts";

interface Open {
  readonly party: Party;
  readonly query: Uint8Array;
}

class PlayedGame implements Game {
  readonly #rules: Rules;
  readonly #members: readonly [Member, Member];
  readonly #play: Play<GameEnd>;
  readonly #found = new Found();
  readonly #room: Room;
  readonly #said = new Said();
  #open: readonly Open[] = [];
  #ending: Ending | null = null;

  constructor(terms: Terms, rules: Rules, members: readonly [Member, Member]) {
    this.#rules = rules;
    this.#members = members;
    const [a, b] = members;
    const checkpoints = [a.commitment.checkpoints, b.commitment.checkpoints] as const;
    this.#room = new Room(terms, boundsOf(terms, rules.arity), checkpoints);
    this.#play = playGame({
      terms,
      arity: rules.arity,
      commitments: [a.commitment, b.commitment],
      found: this.#found,
    });
    this.#advance([]);
  }

  get open(): readonly Open[] {
    return this.#open;
  }

  get ending(): Ending | null {
    return this.#ending;
  }

  receive(party: Party, message: Uint8Array): ReturnType<Said["take"]> {
    const open = this.#open.find((one) => one.party === party);
    return this.#said.take(party, message, this.#members[party].commitment, open?.query);
  }

  judge(answers: readonly ReadAnswer[]): void {
    const convictions = this.#open.flatMap(({ party }, i) => {
      const answer = answers[i];
      return (answer && convictionOf(party, answer)) ?? [];
    });
    if (convictions.length > 0) this.#end({ outcome: 0, convictions });
    else this.#advance(answers);
  }

  requireForfeit(party: Party, envelope: Uint8Array): void {
    const [a, b] = this.#members;
    const forfeit = readForfeit(envelope, {
      jobDigest: this.#rules.jobDigest,
      runRoots: [a.commitment.runRoot, b.commitment.runRoot],
    });
    if (!sameKey(forfeit.referee, this.#rules.referee)) throw refuse("another referee's forfeit");
    if (forfeit.party !== party || !equalBytes(forfeit.query, this.#queryOf(party))) {
      throw refuse("a forfeit of another party, or for another query");
    }
  }

  #queryOf(party: Party): Uint8Array {
    const open = this.#open.find((one) => one.party === party);
    if (open === undefined) throw refuse("a party that is not asked");
    return open.query;
  }

  #end(ending: Ending): void {
    this.#open = [];
    this.#ending = ending;
  }

  /** Goes on to the next round, or to the end. Claims that differ end in no agreement (3.2, 3.5). */
  #advance(answers: readonly Answer[]): void {
    try {
      const next = this.#play.next(answers);
      if (next.done === true) this.#end({ outcome: 1, convictions: [] });
      else this.#ask(next.value);
    } catch (error) {
      if (error instanceof Convicted) this.#end({ outcome: 0, convictions: error.convictions });
      else if (error instanceof WithoutVerdict) this.#end({ outcome: 2, convictions: [] });
      else throw error;
    }
  }

  /** Asks no query whose true answer has no room (2.6.1). */
  #ask(asked: readonly Asked[]): void {
    this.#room.ask(asked, this.#found.step ?? 0);
    this.#open = asked.map(({ party, query }) => ({ party, query: writeQuery(query) }));
  }
}

/** Begins the games of a session. */
export function gamesOf(terms: Terms, rules: Rules): Begin {
  return (members) => new PlayedGame(terms, rules, members);
}

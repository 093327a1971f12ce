/**
 * The state of a session, as a fold over the entries of its log (PROTOCOL 12.3, 12.4, 12.5). The
 * entries are read, signed and linked already.
 */

import { equalBytes, toHex } from "../bytes.ts";
import { sha256 } from "../sha256.ts";
import { deviates } from "./deviation.ts";
import { type Entry, type Said, writeSaid } from "./entries.ts";
import { type Game, Match } from "./match.ts";
import { Register } from "./register.ts";
import type { Rules } from "./rules.ts";
import { firstSigners, type Member, pairs, type Side, sidesOf } from "./sides.ts";

export type State = "sealing" | "opening" | "playing" | "ended";

/** In the sealing the referee logs its return while the log has fewer entries (11.5.2). */
const RETURNS_BEFORE = 895;
const NO_CLAIM = new Uint8Array(32);

/** A deadline, and the entry that is due when it has passed. */
type Due =
  | { readonly kind: "sealed" | "opened"; readonly deadline: bigint }
  | {
      readonly kind: "forfeited";
      readonly match: Match;
      readonly party: 0 | 1;
      readonly deadline: bigint;
    };

/** Begins a game between two members that say different things of their runs. */
export type Begin = (members: readonly [Member, Member]) => Game;

export class Session {
  readonly #rules: Rules;
  readonly #begin: Begin;
  readonly #register: Register;
  #state: State = "sealing";
  #time: bigint;
  /** The sealing or opening deadline. */
  #deadline: bigint;
  #sides: readonly Side[] = [];
  #removed = new Map<string, string>();
  #matches: Match[] = [];
  #round: readonly Match[] = [];
  #rounds = 0;
  #result: { readonly outcome: number; readonly accepted: Uint8Array } | null = null;

  /** The session that entry 0, of this digest and time, begins. */
  constructor(digest: Uint8Array, time: bigint, rules: Rules, begin: Begin) {
    this.#rules = rules;
    this.#begin = begin;
    this.#register = new Register(digest, rules);
    this.#time = time;
    this.#deadline = rules.sealing;
  }

  get state(): State {
    return this.#state;
  }

  get members(): Member[] {
    return this.#register.members;
  }

  get sides(): readonly Side[] {
    return this.#sides;
  }

  /** Why each key that is out is out, by the key in hexadecimal. */
  get removed(): ReadonlyMap<string, string> {
    return new Map<string, string>([...this.#register.excluded, ...this.#removed]);
  }

  /** The games of which the log says that they began. */
  get matches(): readonly Match[] {
    return this.#matches;
  }

  get rounds(): number {
    return this.#rounds;
  }

  get result(): { readonly outcome: number; readonly accepted: Uint8Array } | null {
    return this.#result;
  }

  /** Takes the next entry. A deviation leaves the state as it was. */
  take({ index, time, said }: Entry): void {
    if (this.#state === "ended") throw deviates("an entry after the result");
    if (time < this.#time) throw deviates("a time before the entry before it");
    if (said.kind === "resumed") this.#resume(index, time);
    else this.#takeInTurn(said, time);
    this.#time = time;
  }

  #takeInTurn(said: Said, time: bigint): void {
    const following = this.#following();
    const due = this.#due();
    if (following !== null) {
      if (!equalBytes(writeSaid(said).bytes(), writeSaid(following).bytes())) {
        throw deviates(`an entry (${said.kind}) where another one follows (${following.kind})`);
      }
      this.#follow(following, time);
    } else if (due !== null && due.deadline < time) {
      this.#passDeadline(due, said, time);
    } else {
      this.#receive(said, time);
    }
  }

  /** The referee's return: what was open is open for so long more (11.5.2). */
  #resume(index: number, time: bigint): void {
    if (this.#state === "sealing" && index >= RETURNS_BEFORE) {
      throw deviates("a return in a sealing of too many entries");
    }
    const absence = time - this.#time;
    this.#deadline += absence;
    for (const match of this.#round) match.extend(absence);
  }

  /** The entry that the ones before it determine, if there is one (12.4). */
  #following(): Said | null {
    switch (this.#state) {
      case "sealing":
        return this.#register.allSealed ? { kind: "sealed" } : null;
      case "opening":
        return this.#register.allOpened ? { kind: "opened" } : null;
      case "playing":
        return this.#followingInGames();
      case "ended":
        return null;
    }
  }

  #followingInGames(): Said | null {
    for (const match of this.#round) {
      const following = match.following;
      if (following !== null) return following;
    }
    return this.#round.every(({ verdict }) => verdict !== null) ? this.#resultDue() : null;
  }

  /** The result of a session whose games all have a verdict (10.5.2, 10.6). */
  #resultDue(): Said {
    const kind = "result";
    if (this.#isWithoutResult) return { kind, outcome: 4, accepted: NO_CLAIM };
    const [signer] = this.#signersLeft();
    if (signer === undefined) return { kind, outcome: 0, accepted: NO_CLAIM };
    const outcome = this.#sides.length > 1 ? 1 : this.members.length > 1 ? 2 : 3;
    return { kind, outcome, accepted: sha256(signer.envelope) };
  }

  get #isWithoutResult(): boolean {
    return this.#round.some(({ verdict }) => verdict !== null && verdict.outcome !== 0);
  }

  #signersLeft(): Member[] {
    return firstSigners(
      this.#sides,
      ({ commitment }) => !this.#removed.has(toHex(commitment.signer.raw)),
    );
  }

  /** The deadline that passes first: of equal ones the lower game's, then party 0's (12.4). */
  #due(): Due | null {
    if (this.#state === "sealing") return { kind: "sealed", deadline: this.#deadline };
    if (this.#state === "opening") return { kind: "opened", deadline: this.#deadline };
    let first: Due | null = null;
    for (const match of this.#round) {
      for (const { party, deadline } of match.deadlines) {
        if (first !== null && first.deadline <= deadline) continue;
        first = { kind: "forfeited", match, party, deadline };
      }
    }
    return first;
  }

  #passDeadline(due: Due, said: Said, time: bigint): void {
    if (due.kind !== "forfeited") {
      if (said.kind !== due.kind) throw deviates(`an entry (${said.kind}) after a deadline`);
      this.#follow(said, time);
      return;
    }
    const { match, party } = due;
    if (said.kind !== "forfeited" || said.game !== match.number || said.party !== party) {
      throw deviates(`an entry (${said.kind}) where a forfeit is due`);
    }
    match.forfeit(party, said.envelope, time);
  }

  /** Takes an entry that the referee does not cause: a provider's message (12.2). */
  #receive(said: Said, time: bigint): void {
    if (said.kind === "seal" && this.#state === "sealing") {
      this.#register.seal(said.message);
    } else if (said.kind === "opening" && this.#state === "opening") {
      this.#register.open(said.message);
    } else if (said.kind === "answered") {
      const match = this.#round.find(({ number }) => number === said.game);
      if (match === undefined) throw deviates("an answer in no game that is open");
      match.answer(said.party, said.message, time);
    } else {
      throw deviates(`an entry (${said.kind}) that is not due`);
    }
  }

  /** The entry that was due is in the log. */
  #follow(said: Said, time: bigint): void {
    switch (said.kind) {
      case "sealed":
        this.#state = "opening";
        this.#deadline = time + this.#rules.opening;
        break;
      case "opened":
        this.#state = "playing";
        for (const key of this.#register.unopened) this.#removed.set(key, "unopened");
        this.#sides = sidesOf(this.members);
        this.#pairNextRound();
        break;
      case "result":
        this.#state = "ended";
        this.#result = said;
        break;
      case "game":
      case "asked":
      case "verdict":
        this.#followInGame(said, time);
    }
  }

  #followInGame(said: Said & { readonly game: number }, time: bigint): void {
    const match = this.#round.find(({ number }) => number === said.game);
    if (match === undefined) return;
    match.followed(said, time);
    if (said.kind === "game") this.#matches.push(match);
    const { verdict } = match;
    if (verdict === null) return;
    for (const { party, clause } of verdict.convictions) {
      const key = toHex(match.members[party].commitment.signer.raw);
      this.#removed.set(key, `game ${match.number}: ${clause}`);
    }
    const isOver = this.#round.every((one) => one.verdict !== null);
    if (isOver && !this.#isWithoutResult) this.#pairNextRound();
  }

  /** The next round begins, if more than one side has a signer left (10.5). */
  #pairNextRound(): void {
    const first = this.#matches.length;
    const next = pairs(this.#signersLeft()).map(
      (members, i) => new Match(first + i, members, this.#rules, () => this.#begin(members)),
    );
    if (next.length === 0) return;
    this.#round = next;
    this.#rounds++;
  }
}

/** The games of a session, move by move: those that a judge plays (PROTOCOL 10.5, 12.2, kind 11). */
import { describe, expect, test } from "vitest";

import { writeJson } from "../../src/json.ts";
import type { Step, Terms } from "../../src/job/terms.ts";
import { LIMITS } from "../../src/limits.ts";
import { Found } from "../../src/protocol/found.ts";
import { playGame } from "../../src/protocol/game.ts";
import { ANSWER_TYPE, writeQuery } from "../../src/protocol/messages.ts";
import { Convicted, WithoutVerdict, type Asked, type Play } from "../../src/protocol/play.ts";
import type { Party } from "../../src/protocol/queries.ts";
import { gamesOf } from "../../src/session/game.ts";
import type { Game } from "../../src/session/match.ts";
import { Writer } from "../../src/writer.ts";
import { HONEST, MadeUpParty, type MadeUp } from "../protocol/madeup.ts";
import { forfeitMembers, signedForfeit } from "../protocol/written.ts";
import { ANN, BEN, REFEREE, RULES } from "./builder.ts";
import type { Signer } from "./golden.ts";

const SIGNERS = [ANN, BEN] as const;
const OTHER = new Uint8Array(32).fill(7);
const UNABLE = 1;

/** A game of a session between two runs that are made up, and the same game without a session. */
class Played {
  readonly game: Game;
  readonly parties: readonly [MadeUpParty, MadeUpParty];
  readonly #shadow: Play<unknown>;
  #asked: readonly Asked[] = [];

  constructor(
    a: Partial<MadeUp>,
    b: Partial<MadeUp>,
    steps: (terms: Terms) => Partial<Terms> = () => ({}),
  ) {
    const party = (run: Partial<MadeUp>): MadeUpParty => new MadeUpParty({ ...HONEST, ...run });
    this.parties = [party(a), party(b)];
    const [first, second] = this.parties;
    const commitments = [first.commitment(ANN), second.commitment(BEN)] as const;
    const terms = { ...first.terms, ...steps(first.terms) };
    const envelope = new Uint8Array();
    this.game = gamesOf(terms, { ...RULES, jobDigest: terms.jobDigest, arity: 2 })([
      { commitment: commitments[0], envelope },
      { commitment: commitments[1], envelope },
    ]);
    this.#shadow = playGame({ terms, arity: 2, commitments, found: new Found() });
    this.#follow([]);
  }

  #follow(answers: readonly { readonly body: Uint8Array }[]): void {
    try {
      const next = this.#shadow.next(answers);
      this.#asked = next.done === true ? [] : next.value;
    } catch (error) {
      if (!(error instanceof Convicted) && !(error instanceof WithoutVerdict)) throw error;
      this.#asked = [];
    }
  }

  /** A party's signed answer to its open query, or to that of the other one. */
  signed(party: Party, status = 0, by: Signer = SIGNERS[party], of = party): Uint8Array {
    const query = this.#asked.find((one) => one.party === of)?.query;
    if (query === undefined) throw new Error("a party that is not asked");
    const own = this.parties[party];
    const { jobDigest, runRoot } = own.commitment(SIGNERS[party]);
    const out = Writer.tagged("answer/1").hash(jobDigest).hash(runRoot).blob(writeQuery(query));
    const body = status === UNABLE ? new Uint8Array() : own.answer(query);
    return by.signed(ANSWER_TYPE, out.u8(status).raw(body).bytes());
  }

  /** Plays a round; the statuses are those of both parties' answers. */
  round(statuses: readonly [number, number] = [0, 0]): void {
    const due = this.#asked.map(({ party, query }) => ({ party, query: writeQuery(query) }));
    expect(this.game.open).toEqual(due);
    const answers = this.game.open.map(({ party }) =>
      this.game.receive(party, this.signed(party, statuses[party])),
    );
    this.game.judge(answers);
    this.#follow(answers);
  }

  /** Plays to the end. */
  ended(): Game["ending"] {
    while (this.game.ending === null) this.round();
    expect(this.game.open).toEqual([]);
    return this.game.ending;
  }
}

const logged: Partial<MadeUp> = {
  log: (step) => (step === 3 ? [{ position: 4, direction: 0 }] : []),
};
const liar: Partial<MadeUp> = { lossChain: (step, due) => (step === 9 ? OTHER : due) };

describe("how a game ends", () => {
  test("with convictions", () => {
    const convictions = [{ party: 1, clause: "5.8", case: "3" }];
    expect(new Played({}, liar).ended()).toEqual({ outcome: 0, convictions });
  });

  test("undecided", () => {
    expect(new Played(logged, {}).ended()).toEqual({ outcome: 1, convictions: [] });
  });

  test("without a verdict, where a true answer would be over its limit", () => {
    const huge = (terms: Terms): Partial<Terms> => ({
      step: (t): Step => {
        const { program, ...more } = terms.step(t);
        const [state] = program.nextStates;
        if (state === undefined) throw new Error("no states");
        const nextStates = Array<typeof state>(LIMITS.answerBytes / 32).fill(state);
        return { ...more, program: { ...program, nextStates } };
      },
    });
    expect(new Played({}, liar, huge).ended()).toEqual({ outcome: 2, convictions: [] });
  });

  test("before it asks, where numbers of a commitment are no run's", () => {
    const { game } = new Played({ final: 1 }, {});
    const convictions = [{ party: 0, clause: "3.2", case: "0" }];
    expect([game.ending, game.open]).toEqual([{ outcome: 0, convictions }, []]);
  });

  test("with who is unable to answer, or gives no status", () => {
    const clauses = (...statuses: [number, number]): unknown => {
      const played = new Played({}, liar);
      played.round(statuses);
      return played.game.ending?.convictions.map(({ party, clause }) => `${party} ${clause}`);
    };
    expect(clauses(UNABLE, 0)).toEqual(["0 2.8"]);
    expect(clauses(0, 2)).toEqual(["1 2.7"]);
    expect(clauses(UNABLE, UNABLE)).toEqual(["0 2.8", "1 2.8"]);
    expect(clauses(0, 0)).toBeUndefined();
  });
});

describe("what a game takes", () => {
  test("signed answers to what is asked, and a second one that says something else", () => {
    const { game, ...played } = new Played({}, liar);
    const own = new Played({}, liar);
    expect(() => own.game.receive(0, own.signed(0, 0, BEN))).toThrow("does not verify");
    expect(() => own.game.receive(1, own.signed(0))).toThrow();
    const later = new Played({}, liar);
    later.round();
    expect(() => own.game.receive(0, later.signed(0))).toThrow("not open");
    expect(own.game.receive(0, own.signed(0)).isSecond).toBe(false);
    expect(() => own.game.receive(0, own.signed(0))).toThrow("there twice");
    expect(own.game.receive(0, own.signed(0, UNABLE)).isSecond).toBe(true);
    expect([game.ending, played.parties.length]).toEqual([null, 2]);
  });

  test("no answer of a party that is not asked", () => {
    const played = new Played({ final: 15 }, {}, () => ({ stopsOnNonFinite: true }));
    while (played.game.open.length > 1) played.round();
    // Only the longer run has not stated the state at the other one's end.
    expect(played.game.open.map(({ party }) => party)).toEqual([1]);
    const other = played.signed(0, 0, ANN, 1);
    expect(() => played.game.receive(0, other)).toThrow("owes no answer");
    expect(played.game.receive(1, played.signed(1)).isSecond).toBe(false);
  });

  test("a forfeit of its referee, for the party and the query", () => {
    const played = new Played({}, liar);
    const { game, parties } = played;
    const roots = parties.map((party, k) => party.commitment(k === 0 ? ANN : BEN).runRoot);
    const [a, b] = game.open;
    if (a === undefined || b === undefined) throw new Error("both are asked");
    const forfeit = (party: Party, query: Uint8Array, by = REFEREE): Uint8Array =>
      signedForfeit(
        forfeitMembers(parties[0].terms.jobDigest, roots, party, query, by.key.raw),
        by,
      );
    const required = (party: Party, envelope: Uint8Array) => () => {
      game.requireForfeit(party, envelope);
    };
    expect(required(0, forfeit(0, a.query))).not.toThrow();
    expect(required(1, forfeit(1, b.query))).not.toThrow();
    expect(required(1, forfeit(0, b.query))).toThrow("another party");
    expect(required(0, forfeit(1, a.query))).toThrow("another party");
    expect(required(0, forfeit(0, writeJson(1)))).toThrow("another query");
    expect(required(0, forfeit(0, a.query, ANN))).toThrow("another referee");
  });
});

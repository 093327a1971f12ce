/** Sessions whose games follow a script: rounds, clocks, verdicts (PROTOCOL 10.5 to 12.5). */

import { equalBytes } from "../../src/bytes.ts";
import { describe, expect, test } from "vitest";

import { toHex } from "../../src/bytes.ts";
import { refuse } from "../../src/errors.ts";
import { LIMITS } from "../../src/limits.ts";
import type { ReadAnswer } from "../../src/protocol/messages.ts";
import type { Party } from "../../src/protocol/queries.ts";
import { Deviation } from "../../src/session/deviation.ts";
import { entryDigest, readEntry } from "../../src/session/entries.ts";
import { type Begin, Session } from "../../src/session/fold.ts";
import type { Ending, Game } from "../../src/session/match.ts";
import type { Rules } from "../../src/session/rules.ts";
import { readSigned } from "../../src/protocol/signed.ts";
import { sha256 } from "../../src/sha256.ts";
import { ANN, BEN, CAT, envelopeOf, hash, Log, RULES } from "./builder.ts";
import { Signer } from "./golden.ts";

const BOTH: readonly Party[] = [0, 1];

function convicts(...parties: Party[]): Ending {
  return { outcome: 0, convictions: parties.map((party) => ({ party, clause: "5.8", case: "3" })) };
}

/** A game that asks the parties of each round in turn, and ends as it is told to. An answer is of
 * the open round if its first byte is the round's number; a forfeit, if its first is the party. */
class Scripted implements Game {
  readonly #rounds: readonly (readonly Party[])[];
  readonly #ending: Ending;
  readonly #said = new Map<string, Uint8Array>();
  #at = 0;

  constructor(rounds: readonly (readonly Party[])[], ending: Ending) {
    this.#rounds = rounds;
    this.#ending = ending;
  }

  get open(): { party: Party; query: Uint8Array }[] {
    const parties = this.#rounds[this.#at] ?? [];
    return parties.map((party) => ({ party, query: Uint8Array.of(this.#at, party) }));
  }

  get ending(): Ending | null {
    return this.#at < this.#rounds.length ? null : this.#ending;
  }

  receive(party: Party, message: Uint8Array): ReadAnswer & { isSecond: boolean } {
    const key = `${party} ${message[0] ?? -1}`;
    const before = this.#said.get(key);
    if (before !== undefined && equalBytes(before, message)) throw refuse("an answer again");
    if (before === undefined && message[0] !== this.#at) throw refuse("another round's answer");
    this.#said.set(key, message);
    return { status: 0, body: message, isSecond: before !== undefined };
  }

  judge(answers: readonly ReadAnswer[]): void {
    expect(answers).toHaveLength(this.open.length);
    this.#at++;
  }

  requireForfeit(party: Party, envelope: Uint8Array): void {
    if (envelope[0] !== party) throw refuse("no forfeit");
  }
}

/** The session of a log, whose games are these in turn. */
function sessionOf(log: Log, ...games: readonly Game[]): Session {
  let begun = 0;
  const begin: Begin = () => games[begun++] ?? new Scripted([], convicts());
  let session: Session | null = null;
  for (const bytes of log.entries) {
    const { data } = readSigned(bytes, LIMITS.entryBytes);
    const entry = readEntry(data);
    if (session !== null) session.take(entry);
    else session = new Session(entryDigest(data), entry.time, log.rules, begin);
  }
  if (session === null) throw new Error("no entries");
  return session;
}

/** Writes a log's entries about games. */
class Played extends Log {
  begin(game: number, a: Signer, b: Signer, time: number): this {
    return this.say({ kind: "game", game, keys: [a.key.raw, b.key.raw] }, time);
  }

  ask(party: Party, round: number, time: number, game = 0): this {
    return this.say({ kind: "asked", game, party, query: Uint8Array.of(round, party) }, time);
  }

  askBoth(round: number, time: number, game = 0): this {
    return this.ask(0, round, time, game).ask(1, round, time, game);
  }

  answer(party: Party, round: number, time: number, game = 0, word = 0): this {
    return this.say({ kind: "answered", game, party, message: Uint8Array.of(round, word) }, time);
  }

  forfeit(party: Party, time: number, game = 0, envelope = Uint8Array.of(party)): this {
    return this.say({ kind: "forfeited", game, party, envelope }, time);
  }

  end(outcome: number, convicted: number, time: number, game = 0): this {
    return this.say({ kind: "verdict", game, outcome, convicted }, time);
  }

  result(outcome: number, accepted: Uint8Array, time: number): this {
    return this.say({ kind: "result", outcome, accepted }, time);
  }
}

/** A log up to the opening of these claims; game entries follow at time 1100. */
function opened(rules: Rules, ...claims: readonly (readonly [Signer, number])[]): Played {
  const log = new Played(rules);
  for (const [signer, claim] of claims) log.seal(signer, 1, claim);
  log.say({ kind: "sealed" }, 1001);
  for (const [signer, claim] of claims) log.open(signer, 1100, claim);
  return log.say({ kind: "opened" }, 1100);
}

/** Ann and Ben differ, and both are asked the first question of a game at time 1100. */
const asked = (rules = RULES): Played =>
  opened(rules, [ANN, 7], [BEN, 8]).begin(0, ANN, BEN, 1100).askBoth(0, 1100);
const twoRounds = (ending = convicts(1)): Scripted => new Scripted([BOTH, BOTH], ending);
const digestOf = (signer: Signer, claim: number): Uint8Array => sha256(envelopeOf(signer, claim));
const keyOf = (signer: Signer): string => toHex(signer.key.raw);

function expectDeviation(log: Log, ...games: readonly Game[]): void {
  expect(() => sessionOf(log, ...games)).toThrow(Deviation);
}

describe("a game (PROTOCOL 12.2, 12.4, 12.5)", () => {
  const answered = (): Played => asked().answer(1, 0, 1101).answer(0, 0, 1102);

  test("is asked, answered and judged", () => {
    const log = answered().askBoth(1, 1102).answer(0, 1, 1103).answer(1, 1, 1104);
    log.end(0, 2, 1104).result(1, digestOf(ANN, 7), 1104);
    const session = sessionOf(log, twoRounds());
    expect(session.state).toBe("ended");
    expect([...session.removed]).toEqual([[keyOf(BEN), "game 0: 5.8"]]);
    expect(session.result?.outcome).toBe(1);
  });

  test("what follows is not another entry", () => {
    const begun = (): Played => opened(RULES, [ANN, 7], [BEN, 8]);
    expectDeviation(begun().begin(0, BEN, ANN, 1100));
    expectDeviation(begun().begin(1, ANN, BEN, 1100));
    expectDeviation(begun().result(4, hash(0), 1100));
    const game = (): Played => begun().begin(0, ANN, BEN, 1100);
    expectDeviation(game().ask(1, 0, 1100), twoRounds());
    expectDeviation(game().ask(0, 1, 1100), twoRounds());
    expectDeviation(game().ask(0, 0, 1100).answer(0, 0, 1100), twoRounds());
    expectDeviation(game().end(0, 2, 1100), twoRounds());
    expectDeviation(answered().end(0, 2, 1102), twoRounds());
    expectDeviation(asked().askBoth(0, 1100), twoRounds());
    const over = (): Played => answered().askBoth(1, 1102).answer(0, 1, 1103).answer(1, 1, 1104);
    expectDeviation(over().end(0, 1, 1104), twoRounds());
    expectDeviation(over().end(1, 2, 1104), twoRounds());
    expectDeviation(over().answer(0, 1, 1104), twoRounds());
    expectDeviation(over().end(0, 2, 1104).result(1, digestOf(BEN, 8), 1104), twoRounds());
    expectDeviation(over().end(0, 2, 1104).answer(0, 1, 1104), twoRounds());
  });

  test("an answer without an effect is not logged", () => {
    expectDeviation(asked().answer(0, 1, 1101), twoRounds());
    expectDeviation(asked().answer(0, 0, 1101).answer(0, 0, 1102), twoRounds());
    expectDeviation(asked().answer(0, 0, 1101, 1), twoRounds());
    expectDeviation(answered().askBoth(1, 1102).answer(0, 0, 1103), twoRounds());
    const alone = opened(RULES, [ANN, 7], [BEN, 8]).begin(0, ANN, BEN, 1100).ask(0, 0, 1100);
    expectDeviation(alone.answer(1, 0, 1101), new Scripted([[0]], convicts(1)));
  });

  test("two answers to one query convict their party (2.9)", () => {
    const log = asked().answer(0, 0, 1101).answer(0, 0, 1102, 0, 1);
    log.end(0, 1, 1102).result(1, digestOf(BEN, 8), 1102);
    const session = sessionOf(log, twoRounds());
    expect([...session.removed]).toEqual([[keyOf(ANN), "game 0: 2.9"]]);
  });

  test.each([1, 2] as const)("outcome %i ends the session without a result (10.5.2)", (outcome) => {
    const log = asked().answer(0, 0, 1101).answer(1, 0, 1102).end(outcome, 0, 1102);
    log.result(4, hash(0), 1102);
    const session = sessionOf(log, new Scripted([BOTH], { outcome, convictions: [] }));
    expect([session.result?.outcome, session.removed.size]).toEqual([4, 0]);
  });

  test("a game that convicts before it asks (3.2)", () => {
    const log = opened(RULES, [ANN, 7], [BEN, 8]).begin(0, ANN, BEN, 1100).end(0, 3, 1100);
    const session = sessionOf(log.result(0, hash(0), 1100), new Scripted([], convicts(0, 1)));
    expect([session.result?.outcome, session.removed.size]).toEqual([0, 2]);
  });
});

describe("clocks (PROTOCOL 11.3 to 11.5.2)", () => {
  // Budget + step * steps is 520: a question at 1100 is due until 1620.
  test("an answer at the deadline is in time, and a later one is not logged", () => {
    expect(sessionOf(asked().answer(0, 0, 1620), twoRounds()).state).toBe("playing");
    expectDeviation(asked().answer(0, 0, 1621), twoRounds());
  });

  test("a forfeit after the deadline, and not at it", () => {
    expectDeviation(asked().forfeit(0, 1620), twoRounds());
    expectDeviation(asked().forfeit(1, 1621), twoRounds());
    expectDeviation(asked().forfeit(1, 1621, 0, Uint8Array.of(0)), twoRounds());
    expectDeviation(asked().forfeit(0, 1621, 0, Uint8Array.of(9)), twoRounds());
    expectDeviation(asked().forfeit(0, 1621).end(0, 1, 1621), twoRounds());
    const log = asked().forfeit(0, 1621).forfeit(1, 1621).end(0, 3, 1621);
    expect(sessionOf(log.result(0, hash(0), 1621), twoRounds()).removed.size).toBe(2);
  });

  test("a budget is spent over all rounds, each party's by its own answers", () => {
    // Ann has 20 left of her 520, and so the extension of 50; Ben has 510.
    const second = (): Played => asked().answer(1, 0, 1110).answer(0, 0, 1600).askBoth(1, 1600);
    expect(sessionOf(second().answer(0, 1, 1650), twoRounds()).state).toBe("playing");
    expectDeviation(second().answer(0, 1, 1651), twoRounds());
    expectDeviation(second().answer(1, 1, 1651), twoRounds());
    const silent = (): Played => second().forfeit(0, 1651);
    expect(sessionOf(silent().answer(1, 1, 2110), twoRounds()).removed.size).toBe(0);
    expectDeviation(silent().answer(1, 1, 2111), twoRounds());
    const both = sessionOf(silent().forfeit(1, 2111).end(0, 3, 2111), twoRounds());
    expect(both.removed.size).toBe(2);
  });

  test("the deadline that passes first is due, whichever party's it is", () => {
    const second = (): Played => asked().answer(0, 0, 1110).answer(1, 0, 1600).askBoth(1, 1600);
    expect(sessionOf(second().forfeit(1, 1651), twoRounds()).state).toBe("playing");
    expectDeviation(second().forfeit(0, 1651), twoRounds());
  });

  test("after a forfeit an answer ends the game unjudged, and nothing else has an effect", () => {
    const second = (): Played =>
      asked().answer(1, 0, 1110).answer(0, 0, 1600).askBoth(1, 1600).forfeit(0, 1651);
    const log = second().answer(1, 1, 1700).end(0, 1, 1700).result(1, digestOf(BEN, 8), 1700);
    expect([...sessionOf(log, twoRounds()).removed]).toEqual([[keyOf(ANN), "game 0: 2.10"]]);
    expectDeviation(second().answer(0, 1, 1700), twoRounds());
    expectDeviation(second().answer(1, 0, 1700, 0, 1), twoRounds());
    expectDeviation(second().answer(1, 1, 1700).answer(1, 1, 1701, 0, 1), twoRounds());
    const waited = asked().answer(1, 0, 1110).forfeit(0, 1621).answer(1, 0, 1621, 0, 1);
    expectDeviation(waited, twoRounds());
  });

  test("a return gives back the time since the entry before it, and no more", () => {
    const late = (): Played => asked().answer(1, 0, 1200).say({ kind: "resumed" }, 9200);
    expect(sessionOf(late().answer(0, 0, 9620), twoRounds()).state).toBe("playing");
    expectDeviation(late().answer(0, 0, 9621), twoRounds());
    expectDeviation(late().forfeit(0, 9620), twoRounds());
    // Ben's clock did not run: he has 420 of his 520 left.
    const next = (): Played => late().answer(0, 0, 9300).askBoth(1, 9300);
    expect(sessionOf(next().answer(0, 1, 9400).answer(1, 1, 9720), twoRounds()).state).toBe(
      "playing",
    );
    expectDeviation(next().answer(0, 1, 9400).answer(1, 1, 9721), twoRounds());
  });

  test("a return may stand before what follows", () => {
    const log = asked().answer(1, 0, 1101).answer(0, 0, 1102).say({ kind: "resumed" }, 5000);
    log.ask(0, 1, 5000).say({ kind: "resumed" }, 6000).ask(1, 1, 6000).answer(0, 1, 6518);
    expect(sessionOf(log, twoRounds()).state).toBe("playing");
  });

  test("in the sealing, only while the log has fewer than 895 entries", () => {
    const log = new Log();
    while (log.entries.length < 895) log.say({ kind: "resumed" }, log.entries.length);
    expect(sessionOf(log).state).toBe("sealing");
    expectDeviation(log.say({ kind: "resumed" }, 2000));
  });

  test("and after the sealing whenever it comes", () => {
    const log = new Log().seal(ANN, 1).say({ kind: "sealed" }, 1001);
    while (log.entries.length < 897) log.say({ kind: "resumed" }, 1001);
    expect(sessionOf(log).state).toBe("opening");
  });
});

describe("rounds (PROTOCOL 10.4, 10.5, 10.5.1)", () => {
  const three = { ...RULES, mostParties: 3 };
  const instant = (...parties: Party[]): Scripted => new Scripted([], convicts(...parties));

  test("the last of an odd number waits, and plays the one that is left", () => {
    const log = opened(three, [ANN, 9], [BEN, 8], [CAT, 7]).begin(0, CAT, BEN, 1100);
    log.end(0, 1, 1100).begin(1, BEN, ANN, 1100).end(0, 1, 1100, 1);
    log.result(1, digestOf(ANN, 9), 1100);
    const session = sessionOf(log, instant(0), instant(0));
    expect([session.rounds, session.matches.length]).toEqual([2, 2]);
  });

  test("the next signer of a side plays when the first is removed", () => {
    const log = opened(three, [ANN, 7], [BEN, 7], [CAT, 8]).begin(0, ANN, CAT, 1100);
    log.end(0, 1, 1100).begin(1, BEN, CAT, 1100).end(0, 2, 1100, 1);
    log.result(1, digestOf(BEN, 7), 1100);
    expect(sessionOf(log, instant(0), instant(1)).removed.size).toBe(2);
  });

  test("in a game that is over no clock runs, and no answer has an effect", () => {
    const four = { ...RULES, mostParties: 4 };
    const dan = new Signer(hash(24));
    const [a, b, c, d] = [ANN, BEN, CAT, dan];
    const games = (): Scripted[] => [twoRounds(), twoRounds()];
    const over = (): Played =>
      opened(four, [a, 4], [b, 5], [c, 6], [d, 7])
        .begin(0, a, b, 1100)
        .askBoth(0, 1100, 0)
        .begin(1, c, d, 1100)
        .askBoth(0, 1100, 1)
        .answer(0, 0, 1101, 0)
        .answer(0, 0, 1101, 0, 1)
        .end(0, 1, 1101, 0)
        .answer(0, 0, 1102, 1)
        .answer(1, 0, 1102, 1)
        .askBoth(1, 1300, 1);
    // The second party of the first game was asked until 1620.
    expect(sessionOf(over().answer(0, 1, 1700, 1), ...games()).state).toBe("playing");
    expectDeviation(over().answer(1, 0, 1400, 0), ...games());
  });

  test("games of a round run at the same time, and the lower one's entries follow first", () => {
    const four = { ...RULES, mostParties: 4 };
    const dan = new Signer(hash(24));
    const begun = (): Played =>
      opened(four, [ANN, 4], [BEN, 5], [CAT, 6], [dan, 7])
        .begin(0, ANN, BEN, 1100)
        .askBoth(0, 1100, 0)
        .begin(1, CAT, dan, 1100)
        .askBoth(0, 1100, 1);
    const games = (): Scripted[] => [twoRounds(), twoRounds({ outcome: 1, convictions: [] })];
    const log = begun().answer(0, 0, 1101, 1).answer(0, 0, 1101, 0).answer(1, 0, 1102, 1);
    log.askBoth(1, 1102, 1).answer(0, 1, 1103, 1).answer(1, 1, 1103, 1).end(1, 0, 1103, 1);
    expect(sessionOf(log, ...games()).result).toBeNull();
    // Equal deadlines: the lower game's first. An undecided game waits for the other one.
    log.forfeit(1, 1621, 0).end(0, 2, 1621, 0).result(4, hash(0), 1621);
    const session = sessionOf(log, ...games());
    expect([session.result?.outcome, session.removed.size, session.rounds]).toEqual([4, 1, 1]);
    expectDeviation(begun().forfeit(0, 1621, 1), ...games());
    expectDeviation(begun().forfeit(1, 1621, 0), ...games());
    const all = begun().forfeit(0, 1621, 0).forfeit(1, 1621, 0);
    expectDeviation(all.forfeit(0, 1621, 1), ...games());
  });
});

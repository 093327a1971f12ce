/** A session's log (PROTOCOL 10 and 12) in words. */

import type { SessionOutcome } from "../session/log.ts";
import { actAbout } from "./answers.ts";
import { introduced, keyId, nameOf, type Names } from "./names.ts";
import type { Words } from "./words.ts";
import type { Work } from "./work.ts";

/** How a session's parties are called. */
interface Called {
  readonly key: string;
  readonly id: string;
  readonly label: string;
}

/** All keys that a log names, with labels by their order. */
export function partiesOf(outcome: SessionOutcome): Called[] {
  const played = outcome.games.flatMap(([a, b]) => [a, b]);
  const keys = new Set([...outcome.members, ...Object.keys(outcome.removed), ...played]);
  return [...keys].sort().map((key, i) => ({ key, id: keyId(key), label: `Party ${i + 1}` }));
}

const REASONS: Readonly<Record<string, string>> = {
  "two seals": "signed two different seals, where it may sign one (10.2.3)",
  "false opening": "opened something else than it had sealed (10.3.1)",
  "two openings": "signed two different openings (10.3.1)",
  unopened: "did not open what it had sealed in time. No lie is shown",
};

/** Why a party is out, as a sentence. */
function removal(party: string, reason: string, work: Work): string {
  const game = /^game ([0-9]+): (\S+)$/.exec(reason);
  if (game !== null) {
    const [, number = "", clause = ""] = game;
    const { did, kind } = actAbout(work, clause, "");
    const before = kind === "silence" ? "the referee says that " : "";
    return `${party} lost game ${number}: ${before}it ${did} (${clause}).`;
  }
  return `${party} ${REASONS[reason] ?? "is out"}.`;
}

/** "1 game", "2 games". */
const many = (count: number, thing: string): string => `${count} ${thing}${count === 1 ? "" : "s"}`;

interface Ending {
  readonly tone: Words["tone"];
  readonly headline: string;
  readonly meaning: string;
}

/** By the outcome of the entry of kind 12 (12.2, 10.6). */
const RESULTS: readonly Ending[] = [
  {
    tone: "undecided",
    headline: "No result is accepted",
    meaning: "Every party was removed. None of the results that they signed is left.",
  },
  {
    tone: "same",
    headline: "One result is accepted, after a dispute",
    meaning: "The parties claimed different results. All but this one were dropped, game by game.",
  },
  {
    tone: "same",
    headline: "All parties claim the same result",
    meaning: "Nobody contested it.",
  },
  {
    tone: "undecided",
    headline: "One party alone: its result was compared with nothing",
    meaning: "Nobody else took part to the end. So its result is a claim, and no more.",
  },
  {
    tone: "undecided",
    headline: "The session ended without a result",
    meaning: "A game ended without a verdict. That shows nobody wrong.",
  },
];

function endingOf(outcome: SessionOutcome): Ending {
  if (outcome.wrong === "convicted") {
    return {
      tone: "convicted",
      headline: "The referee broke the rules",
      meaning:
        "The referee's own signed log shows it. Do not rely on anything that this referee says " +
        "about this session.",
    };
  }
  if (outcome.wrong === "damaged") {
    return {
      tone: "undecided",
      headline: "This log is not whole",
      meaning:
        "An entry is missing or damaged. From there on the log says nothing, against nobody.",
    };
  }
  if (outcome.wrong === "refused") {
    return {
      tone: "undecided",
      headline: "This log is none of a session about this job",
      meaning: "That shows nobody wrong. Look whether you gave the right job.",
    };
  }
  const ending = outcome.result === null ? undefined : RESULTS[outcome.result[0]];
  return (
    ending ?? {
      tone: "undecided",
      headline: "The session has not ended",
      meaning: "The log stops before a result. More entries may come.",
    }
  );
}

function story(outcome: SessionOutcome, entries: number, names: Names, work: Work): string[] {
  const read = outcome.index < 0 ? entries : outcome.index;
  const [parties, sides] = [outcome.members.length, outcome.sides.length];
  const said = [`Entries that were played again by the rules, and fit: ${read} of ${entries}.`];
  if (outcome.wrong === "convicted") {
    said.push(`Entry ${outcome.index} is not one that the rules allow there.`);
  }
  if (parties > 0) {
    said.push(`Parties that opened their results: ${parties}. Different results: ${sides}.`);
  }
  if (outcome.games.length > 0) {
    const [games, rounds] = [many(outcome.games.length, "game"), many(outcome.rounds, "round")];
    said.push(`They differed, so they played ${games} in ${rounds}.`);
  }
  const removed = partiesOf(outcome).flatMap(({ key, id, label }) => {
    const why = outcome.removed[key];
    return why === undefined ? [] : [removal(nameOf(label, id, names), why, work)];
  });
  return [...said, ...removed];
}

/** What a log says, of so many entries. */
export function sessionWords(
  outcome: SessionOutcome,
  entries: number,
  names: Names,
  work: Work,
): Words {
  const { tone, headline, meaning } = endingOf(outcome);
  const parties = partiesOf(outcome);
  const labelOf = (key: string): string => parties.find((one) => one.key === key)?.label ?? key;
  return {
    tone,
    headline,
    parties: parties.map(({ id, label }) => introduced(label, id, names)),
    story: story(outcome, entries, names, work),
    figures: [],
    meaning: [meaning],
    proves: [
      "Each entry was read again in this order, each signature was checked, and each game was " +
        "judged from its own messages. Nothing was taken on the referee's word but times and silence.",
    ],
    provesNot: [
      "That a party was ever asked, or that an answer that is not there never came.",
      "That this is the referee's only log of the session.",
      "That an accepted result is right. It was not shown wrong against these parties, and no more.",
    ],
    details: [
      ["State", outcome.state],
      ["Entries", String(entries)],
      ["Reading ended at entry", outcome.index < 0 ? "the end" : String(outcome.index)],
      ["Clause", outcome.clause === "" ? "none" : `PROTOCOL ${outcome.clause}`],
      ...parties.map(({ id, label }): [string, string] => [`Key id of ${label}`, id]),
      ...outcome.games.map(([a, b], i): [string, string] => [
        `Game ${i}`,
        `${labelOf(a)} and ${labelOf(b)}`,
      ]),
      ["Accepted commitment", outcome.result?.[1] ?? "none"],
    ],
  };
}

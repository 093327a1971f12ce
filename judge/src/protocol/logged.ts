/** What a party's own log allows as a value (PROTOCOL 6.11, 6.13, OPENING 8.6, 8.7, 9.5, 9.6). */
import type { Bits } from "../numbers/bits.ts";
import type { Direction, Entry, Logged, PublishedReach, Reach } from "../operators/index.ts";
import { note, type Below, type Dispute } from "./below.ts";
import { execute } from "./opening.ts";
import type { Play } from "./play.ts";
import { convictWhere, forBoth, type Both } from "./rounds.ts";

/** A direction of the bounded form, whose entries are no others. */
const directionOf = (entry: Entry | undefined): Direction | undefined =>
  entry === 2 ? undefined : entry;

/** The entry of the published form, 1 without one (OPENING 9.4.2). */
const publishedEntry = (entry: Entry | undefined): Entry => entry ?? 1;

/** Whether an element's value is one that the entry allows. */
function allows(reach: Reach | PublishedReach, entry: Entry | undefined, value: Bits): boolean {
  if (reach.form === "bounded") return reach.due(directionOf(entry)) === value;
  const own = publishedEntry(entry);
  return reach.holds(value, 1) && reach.holds(value, own);
}

/** Choices of a disputed value (OPENING 8.6.5, 9.5.1). */
function choicesOf(
  reach: Reach | PublishedReach,
  entries: Both<Entry | undefined>,
  claims: Both<Bits>,
): { left: 0 | 1; taken: 0 | 1 } {
  if (reach.form === "published") {
    if (!reach.isChoice) return { left: 0, taken: 0 };
    return { left: 1, taken: claims.some((claim) => claim !== reach.middle) ? 1 : 0 };
  }
  if (!reach.isChoice || entries.every((entry) => entry === undefined)) {
    return { left: 0, taken: 0 };
  }
  const without = reach.due(undefined);
  const isTaken = entries.some((entry) => reach.due(directionOf(entry)) !== without);
  return { left: 1, taken: isTaken ? 1 : 0 };
}

/** Different values under each party's own log; no conviction leaves the game undecided. */
export function* settleLogged(
  below: Below,
  dispute: Dispute<Logged>,
  agreed: readonly Bits[],
): Play<undefined> {
  const { claims } = dispute;
  const { entries, found, openings } = below;
  const reach = yield* execute(openings, dispute.quantity.reach(agreed));
  if (reach.form === "none") {
    note(below, dispute, 1, reach.value);
    return undefined;
  }
  note(below, dispute, 1, reach.form === "bounded" ? reach.due(undefined) : reach.middle);
  found.choices = choicesOf(reach, entries, claims);
  convictWhere(
    forBoth((party) => !allows(reach, entries[party], claims[party])),
    "6.11",
    "3",
  );
  return undefined;
}

/** Different entries for a value on which both agree: who is wrong by its own entry. */
export function* judgeEntry(
  below: Below,
  quantity: Logged,
  value: Bits,
  agreed: readonly Bits[],
): Play<void> {
  const { entries, found, openings } = below;
  const reach = yield* execute(openings, quantity.reach(agreed));
  found.decided(quantity.name, [shownEntry(entries[0]), shownEntry(entries[1])]);
  found.terms += 1;
  if (reach.form === "none") return;
  found.choices = { left: reach.isChoice ? 1 : 0, taken: 0 };
  convictWhere(
    forBoth((party) => isForged(reach, entries[party]) || !allows(reach, entries[party], value)),
    "6.13",
    "3",
  );
}

/** Whether an entry is forged (OPENING 8.7.1, 9.6). */
function isForged(reach: Reach | PublishedReach, entry: Entry | undefined): boolean {
  if (reach.form === "published") return reach.isForged(publishedEntry(entry));
  const direction = directionOf(entry);
  return direction !== undefined && reach.isForged(direction);
}

const shownEntry = (entry: Entry | undefined): string =>
  entry === undefined ? "no entry" : `entry ${entry}`;

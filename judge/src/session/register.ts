/** Who is a party to a session: seals, openings, and who is out (PROTOCOL 10.2, 10.3). */

import { equalBytes, toHex } from "../bytes.ts";
import { readRunCommitment, type RunCommitment } from "../commitment.ts";
import { RefusedError } from "../errors.ts";
import { sameKey } from "../signatures.ts";
import { deviates, logged } from "./deviation.ts";
import type { Rules } from "./rules.ts";
import {
  type Opening,
  type Received,
  receiveOpening,
  receiveSeal,
  type Seal,
  sealedBy,
} from "./seal.ts";
import { compareMembers, type Member } from "./sides.ts";

/** Why a key is out of the session after all its messages. */
export type Excluded = "two seals" | "false opening" | "two openings";

interface Place {
  readonly seal: Received<Seal>;
  opening: Received<Opening> | null;
  member: Member | null;
  excluded: Excluded | null;
}

/** The run commitment of an opening, if it verifies under the opening's key and is of the job. */
function commitmentOf({ message, signer }: Received<Opening>, rules: Rules): RunCommitment | null {
  try {
    const commitment = readRunCommitment(message.commitment);
    const fits = sameKey(commitment.signer, signer);
    return fits && equalBytes(commitment.jobDigest, rules.jobDigest) ? commitment : null;
  } catch (error) {
    if (error instanceof RefusedError) return null;
    throw error;
  }
}

export class Register {
  readonly #session: Uint8Array;
  readonly #rules: Rules;
  /** By the key in hexadecimal. An excluded key keeps its place (10.2.3). */
  readonly #places = new Map<string, Place>();

  constructor(session: Uint8Array, rules: Rules) {
    this.#session = session;
    this.#rules = rules;
  }

  /** Takes a signed seal; one that has no effect is a deviation (10.2.1, 12.5). */
  seal(bytes: Uint8Array): void {
    const seal = logged(() => receiveSeal(bytes));
    if (!equalBytes(seal.message.session, this.#session)) throw deviates("another session's seal");
    const { keys, referee, mostParties } = this.#rules;
    const allowed = keys.length === 0 || keys.some((key) => sameKey(key, seal.signer));
    if (!allowed || sameKey(seal.signer, referee)) throw deviates("a key that may not take part");
    const place = this.#places.get(toHex(seal.signer.raw));
    if (place === undefined) {
      if (this.#places.size >= mostParties) throw deviates("a seal more than the most parties");
      const empty = { seal, opening: null, member: null, excluded: null };
      this.#places.set(toHex(seal.signer.raw), empty);
    } else {
      if (place.excluded !== null) throw deviates("a message of an excluded key");
      if (equalBytes(place.seal.words, seal.words)) throw deviates("a seal that is repeated");
      place.excluded = "two seals";
    }
  }

  /** Takes a signed opening; one that has no effect is a deviation (10.3.1, 12.5). */
  open(bytes: Uint8Array): void {
    const opening = logged(() => receiveOpening(bytes));
    const { message, signer, words } = opening;
    if (!equalBytes(message.session, this.#session)) throw deviates("another session's opening");
    const place = this.#places.get(toHex(signer.raw));
    if (place === undefined) throw deviates("an opening of a key that has not sealed");
    if (place.excluded !== null) throw deviates("a message of an excluded key");
    if (place.opening !== null) {
      if (equalBytes(place.opening.words, words)) throw deviates("an opening that is repeated");
      place.excluded = "two openings";
      return;
    }
    place.opening = opening;
    const commitment = commitmentOf(opening, this.#rules);
    const sealed = equalBytes(sealedBy(message, this.#rules.jobDigest), place.seal.message.sealed);
    if (commitment === null || !sealed) place.excluded = "false opening";
    else place.member = { commitment, envelope: message.commitment };
  }

  /** Whether every key of a list that is not empty has sealed (12.2, kind 3). */
  get allSealed(): boolean {
    const { keys } = this.#rules;
    return keys.length > 0 && keys.every(({ raw }) => this.#places.has(toHex(raw)));
  }

  /** Whether all sealed keys have opened or are excluded (12.2, kind 5). */
  get allOpened(): boolean {
    return [...this.#places.values()].every(
      ({ opening, excluded }) => opening !== null || excluded !== null,
    );
  }

  /** Those that have opened and are not excluded, by their keys. */
  get members(): Member[] {
    return [...this.#places.values()]
      .flatMap(({ member, excluded }) => (member === null || excluded !== null ? [] : [member]))
      .sort(compareMembers);
  }

  /** The excluded keys, and why each is. */
  get excluded(): [string, Excluded][] {
    return [...this.#places].flatMap(([key, { excluded }]) =>
      excluded === null ? [] : [[key, excluded]],
    );
  }

  /** The keys that have sealed, not opened, and are not excluded (10.3.1). */
  get unopened(): string[] {
    return [...this.#places].flatMap(([key, { opening, excluded }]) =>
      opening === null && excluded === null ? [key] : [],
    );
  }
}

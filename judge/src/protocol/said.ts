/** What the parties have signed in a game, by query (PROTOCOL 2.9). */
import { equalBytes, toHex } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { openSignedAnswer, type Answerer, type OpenedAnswer } from "./messages.ts";
import type { Party } from "./queries.ts";

export class Said {
  readonly #answers = [new Map<string, Uint8Array>(), new Map<string, Uint8Array>()] as const;

  /**
   * Reads a party's message. It answers the query that the party owes an answer to, or is another
   * answer to an earlier one: `isSecond`, which convicts. Everything else is refused (2.6), the same
   * answer again too.
   */
  take(
    party: Party,
    bytes: Uint8Array,
    by: Answerer,
    owed: Uint8Array | undefined,
  ): OpenedAnswer & { readonly isSecond: boolean } {
    const opened = openSignedAnswer(bytes, by);
    const answers = this.#answers[party];
    const query = toHex(opened.query);
    const before = answers.get(query);
    if (before !== undefined) {
      if (equalBytes(before, opened.answer)) throw refuse("an answer that is there twice");
      return { ...opened, isSecond: true };
    }
    if (owed === undefined) throw refuse("a message of a party that owes no answer");
    if (!equalBytes(opened.query, owed)) throw refuse("an answer to a query that is not open");
    answers.set(query, opened.answer);
    return { ...opened, isSecond: false };
  }
}

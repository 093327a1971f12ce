/** Goes through a text, token by token. A token that is not there is refused. */
import { refuse } from "../errors.ts";

const INTEGER = /0|-?[1-9][0-9]{0,18}/y;

export class Scanner {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#text.length;
  }

  /** Whether the token is next; it stays. */
  sees(token: string): boolean {
    return this.#text.startsWith(token, this.#at);
  }

  /** Whether the token is next; it is passed over. */
  skips(token: string): boolean {
    const found = this.sees(token);
    if (found) this.#at += token.length;
    return found;
  }

  expect(token: string): void {
    if (!this.skips(token)) throw refuse(`${JSON.stringify(token)} is missing at ${this.#at}`);
  }

  /** How many characters stand before the next one of these. */
  distanceTo(character: string): number {
    const at = this.#text.indexOf(character, this.#at);
    if (at < 0) throw refuse(`${character} is missing`);
    return at - this.#at;
  }

  /** What a pattern with the flag y matches here, if it does. Its length must be bounded. */
  matches(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0];
    this.#at += found?.length ?? 0;
    return found;
  }

  match(pattern: RegExp, what: string): string {
    const found = this.matches(pattern);
    if (found === undefined) throw refuse(`${what} is missing at ${this.#at}`);
    return found;
  }

  /** An integer of PROGRAM 2.2. */
  integer(): bigint {
    const value = BigInt(this.match(INTEGER, "an integer"));
    if (BigInt.asIntN(64, value) !== value) throw refuse("an integer of more than 64 bits");
    return value;
  }

  /** An integer from 0 to `most`, which is below 2⁵³. */
  count(most: number, what: string): number {
    const value = this.integer();
    if (value < 0n || value > BigInt(most)) throw refuse(`${what} is out of range`);
    return Number(value);
  }

  /** Items with a separator between them, at least one and at most `most`. */
  list<T>(separator: string, most: number, what: string, item: () => T): T[] {
    const items: T[] = [];
    do {
      if (items.length >= most) throw refuse(`too many ${what}`);
      items.push(item());
    } while (this.skips(separator));
    return items;
  }
}

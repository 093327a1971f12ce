/** What the members of a JSON value must be: small readers that refuse what does not fit. */
import { refuse } from "../errors.ts";

export type Fields = Readonly<Record<string, unknown>>;

/** An object with all of `required`, and no other member but those of `optional`. */
export function fields(
  value: unknown,
  where: string,
  required: readonly string[],
  optional: readonly string[] = [],
): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw refuse(`${where} is no object`);
  }
  const held = value as Fields;
  for (const name of required) {
    if (!Object.hasOwn(held, name)) throw refuse(`${where} has no ${name}`);
  }
  for (const name of Object.keys(held)) {
    if (!required.includes(name) && !optional.includes(name)) {
      throw refuse(`${where} has a member ${name}`);
    }
  }
  return held;
}

/** An array of at least `least` and at most `most` members, each read by `one`. */
export function list<T>(
  value: unknown,
  where: string,
  one: (member: unknown, where: string) => T,
  least = 0,
  most = Infinity,
): T[] {
  if (!Array.isArray(value)) throw refuse(`${where} is no list`);
  const { length } = value;
  if (length < least || length > most) throw refuse(`${where} has ${length} members`);
  return value.map((member, at) => one(member, `${where}[${at}]`));
}

/** A text that fits the pattern. */
export function text(value: unknown, where: string, pattern = /^[^]+$/): string {
  if (typeof value !== "string" || !pattern.test(value)) throw refuse(`${where} does not fit`);
  return value;
}

/** One of some words. */
export function word<T extends string>(value: unknown, where: string, words: readonly T[]): T {
  const found = words.find((one) => one === value);
  if (found === undefined) throw refuse(`${where} is none of ${words.join(", ")}`);
  return found;
}

/** A whole number in a range. One that JSON.parse cannot hold exactly is refused too. */
export function whole(value: unknown, where: string, least: bigint, most: bigint): bigint {
  if (typeof value === "bigint" || Number.isSafeInteger(value)) {
    const found = BigInt(value as bigint | number);
    if (found >= least && found <= most) return found;
  }
  throw refuse(`${where} is no whole number that fits`);
}

/** The number of an earlier member of a list of `length` members. */
export const numberBelow =
  (length: number) =>
  (value: unknown, where: string): number =>
    Number(whole(value, where, 0n, BigInt(length) - 1n));

export function truth(value: unknown, where: string): boolean {
  if (typeof value !== "boolean") throw refuse(`${where} is no truth value`);
  return value;
}

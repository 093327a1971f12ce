/** Tokens of a text, one by one (PROGRAM 2.1, 2.2). */
import { expect, test } from "vitest";

import { Scanner } from "../../src/program/scanner.ts";
import { orRefused } from "./cases.ts";

test("an integer has 64 bits (2.2)", () => {
  const of = (text: string): unknown => orRefused(() => new Scanner(text).integer());
  const [least, most] = [-(2n ** 63n), 2n ** 63n - 1n];
  expect([of(least.toString()), of(most.toString())]).toEqual([least, most]);
  expect([of((least - 1n).toString()), of((most + 1n).toString())]).toEqual(["refused", "refused"]);
});

test("a count is from 0 to its bound", () => {
  const of = (text: string): unknown => orRefused(() => new Scanner(text).count(5, "this"));
  expect(["-1", "0", "5", "6", "x"].map(of)).toEqual(["refused", 0, 5, "refused", "refused"]);
});

test("how far it is to a character that is there, and none that is not", () => {
  const scanner = new Scanner(")ab)");
  expect(scanner.distanceTo(")")).toBe(0);
  scanner.expect(")");
  expect(scanner.distanceTo(")")).toBe(2);
  expect(orRefused(() => scanner.distanceTo("]"))).toBe("refused");
});

test("a list has an item, and at most so many", () => {
  const of = (text: string): unknown =>
    orRefused(() => {
      const scanner = new Scanner(text);
      return scanner.list(",", 2, "numbers", () => scanner.integer());
    });
  expect(["1", "1,2"].map(of)).toEqual([[1n], [1n, 2n]]);
  expect(["", "1,", "1,2,3"].map(of)).toEqual(["refused", "refused", "refused"]);
});

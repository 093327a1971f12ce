/** Programs as long, and nodes as wide, as COMMITMENTS 11.1 allows, and by one more than that. */
import { describe, expect, test } from "vitest";

import { toUtf8 } from "../../src/bytes.ts";
import { LIMITS } from "../../src/limits.ts";
import { readProgram } from "../../src/program/read.ts";
import { readText } from "../../src/program/reader.ts";
import { orRefused, TABLE } from "./cases.ts";

const HEAD = ["tallystick program 1", "contract ordered/1-draft.1"];

const isRead = (lines: readonly string[]): boolean =>
  orRefused(() => readProgram(toUtf8(lines.join("\n")), TABLE)) !== "refused";

test("a program has 64 MiB at most (11.1)", () => {
  const end = "output loss %0\nend\n";
  const text = (bytes: number): Uint8Array => {
    const parts = [...HEAD, "input batch batch.a f32[2]"];
    const rest = `%0 = aten.sum(@batch.a) : f32[]\n${end}`;
    let left = bytes - parts.join("\n").length - 1 - rest.length;
    const input = (name: string): string => `input batch ${name} f32[1]`;
    const bare = input("").length + 1;
    for (let k = 0; left > 0; k++) {
      const name = `batch.b${String(k).padStart(6, "0")}`;
      const length = left < 2 * LIMITS.nameBytes ? left - bare : LIMITS.nameBytes - 100;
      const isLast = length <= LIMITS.nameBytes;
      const own = name.padEnd(isLast ? length : LIMITS.nameBytes - 100, "z");
      parts.push(input(own));
      left -= own.length + bare;
    }
    return toUtf8(`${parts.join("\n")}\n${rest}`);
  };
  for (const [bytes, isFine] of [
    [LIMITS.programBytes, true],
    [LIMITS.programBytes + 1, false],
  ] as const) {
    const made = text(bytes);
    expect(made.length).toBe(bytes);
    expect(orRefused(() => readProgram(made, TABLE)) !== "refused").toBe(isFine);
  }
});

test("a node has 1048592 operands at most (11.1)", () => {
  const wide = (count: number): boolean =>
    isRead([
      ...HEAD,
      "input batch batch.a f32[1]",
      `%0 = aten.cat(${Array<string>(count).fill("@batch.a").join(", ")}){dim=0} : f32[${count}]`,
      "%1 = aten.sum(%0) : f32[]",
      "output loss %1",
      "end\n",
    ]);
  expect(wide(LIMITS.nodeInputs)).toBe(true);
  expect(wide(LIMITS.nodeInputs + 1)).toBe(false);
});

test("attributes of a node have 1 MiB at most (11.1)", () => {
  // No operator takes so many numbers, so it is the sentence that tells.
  const long = (bytes: number): (() => unknown) => {
    const rest = Array<string>(Math.floor((bytes - "size=[1]".length) / 2)).fill(",1");
    const attributes = `size=[${bytes % 2 === 0 ? "1" : "10"}${rest.join("")}]`;
    expect(attributes.length).toBe(bytes);
    const view = `%0 = aten.view(@batch.a){${attributes}} : f32[1]`;
    const lines = [...HEAD, "input batch batch.a f32[1]", view, "output loss %0", "end\n"];
    return () => readProgram(toUtf8(lines.join("\n")), TABLE);
  };
  expect(long(LIMITS.attributeBytes)).toThrow(/a tensor has 5[0-9]{5} axes/);
  expect(long(LIMITS.attributeBytes + 1)).toThrow("attributes of too many bytes");
});

test("a section has 1000000 nodes at most (11.1)", () => {
  const section = (count: number): boolean =>
    isRead([
      ...["tallystick program 2", "contract ordered/1-draft.1", "input state s f32[]"],
      `micro ${count}`,
      ...Array.from({ length: count }, (_, k) => `%${k} = aten.neg(@s) : f32[]`),
      ...["output loss @s", "end\n"],
    ]);
  expect(section(LIMITS.nodes)).toBe(true);
  expect(section(LIMITS.nodes + 1)).toBe(false);
});

describe("lists are no longer than 11.1 allows", () => {
  const line = (count: number, one: (number: string) => string): string =>
    Array.from({ length: count }, (_, k) => one(String(k).padStart(7, "0"))).join("\n");
  const cases: [string, string, string][] = [
    ["nodes", "1", line(LIMITS.nodes + 1, (k) => `%${Number(k)} = aten.neg(@s) : f32[]`)],
    ["inputs", "1", line(LIMITS.slots, (k) => `input state t${k} f32[]`)], // one stands before
    ["carries", "2", `micro 1\n${line(LIMITS.slots + 1, (k) => `carry t${k} %0`)}`],
    ["outputs", "1", line(2 * LIMITS.slots + 1, (k) => `output t${k} @s`)],
  ];
  test.each(cases)("%s", (what, version, lines) => {
    const text = [`tallystick program ${version}`, HEAD[1], "input state s f32[]", lines, "end\n"];
    expect(() => readText(toUtf8(text.join("\n")))).toThrow(`a program of too many ${what}`);
  });
});

/** What a program of a step must have (COMMITMENTS 7.4): a loss of type f32[], and a next state. */
import { expect, test } from "vitest";

import { toUtf8 } from "../../src/bytes.ts";
import { readProgram } from "../../src/program/read.ts";
import { stepProgramOf } from "../../src/program/step.ts";
import { orRefused, TABLE } from "./cases.ts";

const COMMIT = "%1 = tallystick.commit(@w) : none";

function isStep(...lines: readonly string[]): boolean {
  const head = [
    "tallystick program 1",
    "contract ordered/1-draft.1",
    "input state w f32[2]",
    "%0 = aten.sum(@w) : f32[]",
  ];
  const program = readProgram(toUtf8([...head, ...lines, "end", ""].join("\n")), TABLE);
  return orRefused(() => stepProgramOf(program, 1, TABLE)) !== "refused";
}

test("a loss and a next state", () => {
  expect(isStep(COMMIT, "output loss %0", "output w @w")).toBe(true);
});

test("a loss of another type, or another output alone", () => {
  expect(isStep(COMMIT, "output loss @w", "output w @w")).toBe(false);
  expect(isStep(COMMIT, "output other %0", "output w @w")).toBe(false);
});

test("no next state", () => {
  expect(isStep("output loss %0")).toBe(false);
});

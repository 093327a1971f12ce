import { expect, test } from "vitest";

import { court } from "../../court.ts";
import { NO_NAMES } from "../../src/face/names.ts";
import { wordsOf } from "../../src/face/words.ts";
import type { Judged } from "../../src/face/judged.ts";
import { caseOf } from "./material.ts";

function judgedCase(bundle: string, name: string): Judged {
  const { evidence, job } = caseOf(bundle, name);
  const programs = new Map(job);
  programs.delete("job.json");
  const manifest = job.get("job.json") ?? new Uint8Array();
  return court.judge(evidence, { manifest, programs }, { referees: [] });
}

/** All that is said outside of the details. */
function told(judged: Judged): string {
  const { story, figures } = wordsOf(judged, NO_NAMES);
  return [...story, ...figures.map(({ text, note }) => `${text}: ${note}`)].join("\n");
}

test("a false value of the data has its field and record", () => {
  const judged = judgedCase("attacks", "ordered/1: data-poisoning, party 1");
  expect(judged.disputed).toEqual({ what: "record", field: "x", record: 28 });
  expect(told(judged)).toContain("a false value for the field “x” of record 28");
});

test("a false setting stands beside the job's own, and is a fingerprint", () => {
  const judged = judgedCase("attacks", "ordered/1: wrong-learning-rate, party 0");
  expect(judged.disputed).toEqual({ what: "setting", name: "lr", value: 0.003 });
  expect(told(judged)).toContain("the learning rate (lr)");
  expect(told(judged)).toContain("false: not the fingerprint of 0.003");
  expect(told(judged)).toContain(`0.003 (fingerprint ${judged.found.value})`);
});

test("anything else in dispute is neither", () => {
  for (const name of ["lie-output", "swapped-frozen-weight", "lie-input-digest"]) {
    expect(judgedCase("attacks", `ordered/1: ${name}, party 0`).disputed).toBeNull();
  }
});

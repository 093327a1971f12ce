import { expect, test } from "vitest";

import { concatBytes, toUtf8 } from "../../src/bytes.ts";
import { RefusedError } from "../../src/errors.ts";
import { OPENING, writeCarried } from "../../src/face/carried.ts";
import { assembleJob, contractOf, lacking, whatIs } from "../../src/face/files.ts";
import { readPublicKey } from "../../src/face/pem.ts";
import { bytesOfVectors, jsonOfVectors } from "../vectors.ts";
import { caseOf, casesOf } from "./material.ts";

const { evidence, job, referees } = caseOf("attacks", "ordered/1: silent, party 0");
const manifest = job.get("job.json") ?? new Uint8Array();
const program = job.get("program.txt") ?? new Uint8Array();
const refusal = (bytes: Uint8Array): string => {
  try {
    whatIs(bytes);
  } catch (error) {
    if (error instanceof RefusedError) return error.message;
    throw error;
  }
  throw new Error("it was taken");
};

test("each kind of file is known by its content", () => {
  expect(whatIs(evidence).kind).toBe("evidence");
  expect(whatIs(manifest).kind).toBe("manifest");
  expect(whatIs(program).kind).toBe("program");
  expect(whatIs(toUtf8(referees[0] ?? "")).kind).toBe("key");
  const text = writeCarried({ evidence, job, names: new Map() });
  expect(whatIs(toUtf8(`<html>${OPENING}${text}</scr` + "ipt></html>")).kind).toBe("page");
});

test("a run commitment is taken if its signature verifies", () => {
  const bytes = new Uint8Array(bytesOfVectors("runs/logreg-run/commitment.json"));
  const given = whatIs(bytes);
  expect(given.kind === "commitment" && given.commitment.finalStep).toBe(100);
  const forged = toUtf8(new TextDecoder().decode(bytes).replace('"sig":"QWcY', '"sig":"QWcZ'));
  expect(refusal(forged)).toContain("signature");
});

test("entries of a session's log come with their index", () => {
  const sessions = jsonOfVectors("protocol/sessions.json") as {
    logs: { entries: [number, number][] }[];
  };
  const data = new Uint8Array(bytesOfVectors("protocol/sessions.bin"));
  const entries = sessions.logs[0]?.entries ?? [];
  expect(entries.length).toBeGreaterThan(3);
  entries.forEach(([offset, length], index) => {
    const given = whatIs(data.slice(offset, offset + length));
    expect(given.kind === "entry" && given.index).toBe(index);
  });
});

test("what is none of these is refused with a sentence", () => {
  expect(refusal(new Uint8Array())).toContain("empty");
  expect(refusal(toUtf8("hello"))).toContain("neither evidence");
  expect(refusal(toUtf8("<html></html>"))).toContain("neither evidence");
  expect(refusal(toUtf8('{"a":1}'))).toContain("JSON");
  expect(refusal(toUtf8('{"a": 1}'))).toContain("JSON");
  expect(refusal(toUtf8("-----BEGIN PRIVATE KEY-----\nMC4\n"))).toContain("private key");
  expect(refusal(concatBytes(evidence, new Uint8Array(16777216)))).toContain("longer");
});

test("only a file's first bytes say evidence; the judge looks at the others", () => {
  expect(whatIs(evidence.subarray(0, 200)).kind).toBe("evidence");
  expect(() => whatIs(evidence.subarray(0, 12))).toThrow(RefusedError);
});

test("a job of one program is put together from its parts", () => {
  const whole = assembleJob(manifest, [toUtf8("tallystick program 1\nanother\n"), program]);
  expect(whole.missing).toEqual([]);
  expect(whole.files).toEqual({ manifest, programs: new Map([["program.txt", program]]) });
  const without = assembleJob(manifest, [toUtf8("tallystick program 1\nanother\n")]);
  expect(without.missing).toEqual(["program.txt"]);
  expect(lacking(without)).toContain("program.txt is missing, or is another one");
  expect(contractOf(manifest)).toBe("ordered/1-draft.1");
});

test("texts of a job of several programs get the names that the manifest gives their digests", () => {
  const jobs = casesOf("format-two").map((one) => one.job);
  expect(jobs.some((files) => files.size > 3)).toBe(true);
  for (const files of jobs) {
    const programs = [...files].filter(([name]) => name !== "job.json").sort();
    const texts = programs.map(([, text]) => text).reverse();
    const whole = assembleJob(files.get("job.json") ?? new Uint8Array(), texts);
    expect(whole.missing).toEqual([]);
    expect([...(whole.files.programs as Map<string, Uint8Array>)].sort()).toEqual(programs);
  }
});

test("a public key has one form", () => {
  const pem = referees[0] ?? "";
  const key = readPublicKey(toUtf8(pem));
  expect(readPublicKey(toUtf8(pem.replaceAll("\n", "\r\n"))).id).toBe(key.id);
  expect(key.id).toMatch(/^7599776c3085e3f9/);
  for (const bad of [pem.replace("MCow", "MCox"), `${pem}x`, pem.slice(5), pem.repeat(9)]) {
    expect(() => readPublicKey(toUtf8(bad))).toThrow(RefusedError);
  }
});

test("no cut and no changed byte of any file does anything but refuse or be some file", () => {
  const commitment = new Uint8Array(bytesOfVectors("runs/logreg-run/commitment.json"));
  for (const bytes of [evidence, manifest, program, commitment, toUtf8(referees[0] ?? "")]) {
    const stride = Math.ceil(bytes.length / 150);
    for (let at = 0; at < bytes.length; at += stride) {
      for (const changed of [bytes.subarray(0, at), bytes.map((b, i) => (i === at ? b ^ 4 : b))]) {
        try {
          const given = whatIs(changed);
          if (given.kind === "manifest") assembleJob(given.bytes, [program]);
        } catch (error) {
          expect(error).toBeInstanceOf(RefusedError);
        }
      }
    }
  }
});

import { describe, expect, test } from "vitest";

import { fromUtf8, toUtf8 } from "../../src/bytes.ts";
import { RefusedError } from "../../src/errors.ts";
import { carriedOf, carries, OPENING, readCarried, writeCarried } from "../../src/face/carried.ts";
import { caseOf } from "./material.ts";

const { evidence, job } = caseOf("attacks", "ordered/1: low-precision, party 0");
const KEY = "ab".repeat(32);
const TEXT = writeCarried({ evidence, job, names: new Map([[KEY, "Alice & Söhne"]]) });
const END = "</scr" + "ipt>";
const page = (
  text: string,
  before = "<!doctype html><p>A report</p>",
  after = "<p>more</p>",
): Uint8Array => toUtf8(`${before}${OPENING}${text}${END}${after}`);

test("a page gives back what was written into it", () => {
  const carried = carriedOf(page(TEXT));
  expect(carried.evidence).toEqual(evidence);
  expect(carried.job).toEqual(job);
  expect([...carried.names]).toEqual([[KEY, "Alice & Söhne"]]);
});

test("the tag is the one that the format names", () => {
  expect(OPENING).toBe(
    '<script type="application/vnd.tallystick.carried+json" id="tallystick-carried">',
  );
});

test("bytes that are no UTF-8 around the element do not matter", () => {
  const bytes = new Uint8Array([0xff, 0x3c, 0xfe, ...page(TEXT), 0xff]);
  expect(carries(bytes)).toBe(true);
  expect(carriedOf(bytes).evidence).toEqual(evidence);
});

test("the element is found behind what is nearly its tag", () => {
  const nearly = ["<", OPENING.slice(0, -1), OPENING.slice(1), `<<${OPENING.slice(1, -2)}`];
  const near = page(TEXT, nearly.join("").replace(OPENING, ""), "</scrip</scrip");
  expect(carriedOf(near).evidence).toEqual(evidence);
  expect(carries(toUtf8(OPENING.slice(0, -1).repeat(3)))).toBe(false);
});

const ONE = {
  evidence: "AA==",
  format: "tallystick-carried/1",
  job: { "job.json": "AA==" },
  names: {},
};
const written = (change: object): string => JSON.stringify({ ...ONE, ...change });

test("a small text is accepted before it is changed below", () => {
  expect(readCarried(toUtf8(written({}))).evidence).toEqual(Uint8Array.of(0));
});

describe("refused", () => {
  test.each([
    ["no element", toUtf8("<html></html>")],
    [
      "two elements",
      page(
        TEXT,
        page(TEXT).reduce((t, b) => t + String.fromCharCode(b), ""),
      ),
    ],
    ["the tag once more, without an element", page(TEXT, "", OPENING)],
    ["cut off", page(TEXT).subarray(0, 500)],
    [
      "another order of attributes",
      toUtf8(`<script id="tallystick-carried" type="x">${TEXT}${END}`),
    ],
    ["a blank before the text", page(` ${TEXT}`)],
    ["a character that begins a tag", page(TEXT.replace("Alice &", "Alice <"))],
  ])("%s", (_, bytes) => {
    expect(() => carriedOf(bytes)).toThrow(RefusedError);
  });

  test.each([
    ["another format", written({ format: "tallystick-carried/2" })],
    ["a member more", written({ other: 1 })],
    ["no names", written({ names: undefined })],
    ["unused bits of base64", written({ evidence: "AB==" })],
    ["no padding", written({ evidence: "AA" })],
    ["base64 of the other alphabet", written({ evidence: "_-==" })],
    ["no manifest", written({ job: { "program.txt": "AA==" } })],
    ["a file of another name", written({ job: { "job.json": "AA==", "../x": "AA==" } })],
    [
      "a program of a wrong name",
      written({ job: { "job.json": "AA==", "program-A.txt": "AA==" } }),
    ],
    ["a key that is none", written({ names: { abc: "x" } })],
    ["a key in capitals", written({ names: { ["AB".repeat(32)]: "x" } })],
    ["a name that is a number", written({ names: { [KEY]: 1 } })],
    ["a name over its limit", written({ names: { [KEY]: "x".repeat(1025) } })],
    ["evidence over its limit", written({ evidence: "A".repeat(4 * 5592407) })],
  ])("%s", (_, text) => {
    expect(() => readCarried(toUtf8(text))).toThrow(RefusedError);
  });

  test("too many names", () => {
    const names = Array.from({ length: 65 }, (_, i) => [i.toString(16).padStart(64, "0"), "x"]);
    expect(() =>
      readCarried(toUtf8(written({ names: Object.fromEntries(names) as object }))),
    ).toThrow("names too many keys");
  });
});

test("a writer writes only what a reader takes", () => {
  const bad = { evidence, job, names: new Map([[KEY, "</scr" + "ipt>"]]) };
  expect(() => writeCarried(bad)).toThrow(RefusedError);
  expect(fromUtf8(toUtf8(TEXT))).toBe(TEXT);
});

test("no cut and no changed byte of a page does anything but refuse or read", () => {
  const bytes = page(written({}));
  for (let at = 0; at < bytes.length; at++) {
    for (const changed of [
      bytes.subarray(0, at),
      bytes.map((byte, i) => (i === at ? byte ^ 1 : byte)),
    ]) {
      try {
        carriedOf(changed);
      } catch (error) {
        expect(error).toBeInstanceOf(RefusedError);
      }
    }
  }
});

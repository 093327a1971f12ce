import { describe, expect, test } from "vitest";

import {
  compareNames,
  fromBase64,
  fromHex,
  fromUtf8,
  toBase64,
  toHex,
  toUtf8,
} from "../src/bytes.ts";
import { RefusedError } from "../src/errors.ts";
import { readHexFloat, writeHexFloat } from "../src/hexfloat.ts";
import { readJson, writeJson } from "../src/json.ts";
import { Reader } from "../src/reader.ts";
import { Writer } from "../src/writer.ts";

const read = (text: string) => readJson(new TextEncoder().encode(text), 1 << 24);

describe("bytes", () => {
  test("hexadecimal digits are lower-case (COMMITMENTS 1.1)", () => {
    expect(toHex(fromHex("00ff1a"))).toBe("00ff1a");
    for (const wrong of ["0", "FF", "0x", "zz", " 0"])
      expect(() => fromHex(wrong)).toThrow(RefusedError);
  });

  test("UTF-8 without lone surrogates (COMMITMENTS 1.2)", () => {
    expect(fromUtf8(toUtf8("\ufeffé😀"))).toBe("\ufeffé😀");
    expect(() => toUtf8("\ud800")).toThrow(RefusedError);
    expect(() => toUtf8("\ude00\ud83d")).toThrow(RefusedError);
    for (const wrong of ["eda080", "c080", "ff", "e282"]) {
      expect(() => fromUtf8(fromHex(wrong))).toThrow(RefusedError);
    }
  });

  test("names are in the order of code points, not of UTF-16 units (COMMITMENTS 1.4)", () => {
    expect(["\u{1f600}", "\uffff", "ab", "a"].sort(compareNames)).toEqual([
      "a",
      "ab",
      "\uffff",
      "\u{1f600}",
    ]);
  });

  test("base64 is read in its one form (COMMITMENTS 9.3)", () => {
    for (let n = 0; n < 9; n++) {
      const bytes = Uint8Array.from({ length: n }, (_, i) => 251 - 31 * i);
      expect(toBase64(bytes)).toBe(Buffer.from(bytes).toString("base64"));
      expect(fromBase64(toBase64(bytes))).toEqual(bytes);
    }
    for (const wrong of ["A", "AA", "AB==", "AAB=", "AA=A", "A===", "AA==AA==", "A_==", "AA==\n"]) {
      expect(() => fromBase64(wrong)).toThrow(RefusedError);
    }
  });
});

describe("canonical JSON (COMMITMENTS 1.8 to 1.11)", () => {
  test("reads what it writes", () => {
    for (const text of [
      "null",
      "[true,false,0,-1,9007199254740991,-9007199254740991]",
      '{"":1,"a":[],"b":{}}',
      String.raw`"\"\\\b\t\n\f\r\u0000\u001f/é😀` + '\u007f"',
      '{"__proto__":1,"😀":2,"\uffff":3}',
      `"a${String.raw`\u0000é\n`.repeat(5000)}"`,
    ]) {
      expect(fromUtf8(writeJson(read(text)))).toBe(text);
    }
  });

  test("refuses every other form", () => {
    for (const text of [
      "",
      " 1",
      "1 ",
      "01",
      "-0",
      "+1",
      "1.0",
      "1e3",
      "9007199254740992",
      "-9007199254740992",
      "NaN",
      "Infinity",
      "nul",
      "[1,]",
      "[1 ,2]",
      "[1",
      "{}{}",
      '{"a":1,"a":1}',
      '{"b":1,"a":2}',
      '{"\uffff":3,"😀":2}',
      '{"a" :1}',
      '{"a":1,}',
      "{a:1}",
      "'a'",
      '"a',
      '"\\"',
      '"\n"',
      '"\\/"',
      '"\\u0061"',
      '"\\u000a"',
      '"\\u001F"',
      '"\\ud800"',
      '"\\x41"',
      '"\\u00"',
      "// 1",
      "\ufeff1",
    ]) {
      expect(() => read(text), text).toThrow(RefusedError);
    }
  });

  test("nests 64 deep and no deeper", () => {
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    expect(fromUtf8(writeJson(read(nested(64))))).toBe(nested(64));
    expect(() => read(nested(65))).toThrow(RefusedError);
    expect(() => read(nested(100000))).toThrow(RefusedError);
    expect(() => writeJson([read(nested(64))])).toThrow(RefusedError);
  });

  test("counts values and bytes first (COMMITMENTS 11.1)", () => {
    expect(() => read(`"${",".repeat(1048576)}"`)).not.toThrow();
    expect(() => read(`"${",".repeat(1048577)}"`)).toThrow(RefusedError);
    expect(() => readJson(toUtf8('"12"'), 3)).toThrow(RefusedError);
    expect(readJson(toUtf8('"12"'), 4)).toBe("12");
  });

  test("a long string takes no stack", () => {
    expect(read(`"${"a\\n".repeat(2000000)}"`)).toHaveLength(4000000);
  });

  test("writes no other numbers", () => {
    for (const value of [0.5, 2 ** 53, NaN, Infinity])
      expect(() => writeJson(value)).toThrow(RefusedError);
    expect(() => writeJson("\ud800")).toThrow(RefusedError);
  });
});

describe("binary64 in hexadecimal (COMMITMENTS 1.10)", () => {
  test("has one form for each number", () => {
    const forms: [string, number][] = [
      ["0x1.999999999999ap-4", 0.1],
      ["-0x1.0000000000000p+0", -1],
      ["0x0.0p+0", 0],
      ["-0x0.0p+0", -0],
      ["0x0.0000000000001p-1022", 5e-324],
      ["0x1.0000000000000p-1022", 2 ** -1022],
      ["0x1.fffffffffffffp+1023", Number.MAX_VALUE],
      ["inf", Infinity],
      ["-inf", -Infinity],
      ["nan", NaN],
    ];
    for (const [form, value] of forms) {
      expect(readHexFloat(form)).toBe(value);
      expect(writeHexFloat(value)).toBe(form);
    }
  });

  test("refuses every other form", () => {
    for (const form of [
      "",
      "1",
      "0x1p+0",
      "0x1.0p+0",
      "0x1.00000000000000p+0",
      "0X1.0000000000000p+0",
      "0x1.999999999999Ap-4",
      "0x1.0000000000000p0",
      "0x1.0000000000000p-0",
      "0x1.0000000000000p+00",
      "0x1.0000000000000p+1024",
      "0x1.0000000000000p-1023",
      "0x0.0000000000000p-1022",
      "0x0.0000000000001p-1021",
      "0x2.0000000000000p+0",
      "+inf",
      "-nan",
      "NaN",
      "infinity",
      "nan\n",
    ]) {
      expect(() => readHexFloat(form), form).toThrow(RefusedError);
    }
  });
});

describe("layouts (COMMITMENTS 1.2, 1.6)", () => {
  const layout = Writer.tagged("x/1")
    .u8(1)
    .u16(0x203)
    .u32(0x4050607)
    .u64(2n ** 64n - 1n)
    .f64(-0)
    .hash(new Uint8Array(32).fill(7))
    .blob(Uint8Array.of(1, 2))
    .text("é")
    .hashes([new Uint8Array(32)])
    .bytes();

  function readAll(bytes: Uint8Array): unknown[] {
    const r = new Reader(bytes);
    r.tag("x/1");
    const out = [
      r.u8(),
      r.u16(),
      r.u32(),
      r.u64(),
      r.f64(),
      r.hash(),
      r.blob(2, "b"),
      r.text(),
      r.hashes(1, "h"),
    ];
    r.end();
    return out;
  }

  test("are read as they are written", () => {
    expect(readAll(layout)).toEqual([
      1,
      0x203,
      0x4050607,
      2n ** 64n - 1n,
      -0,
      new Uint8Array(32).fill(7),
      Uint8Array.of(1, 2),
      "é",
      [new Uint8Array(32)],
    ]);
  });

  test("no byte may be missing or left over", () => {
    for (let n = 0; n < layout.length; n++)
      expect(() => readAll(layout.subarray(0, n))).toThrow(RefusedError);
    expect(() => readAll(Uint8Array.of(...layout, 0))).toThrow(RefusedError);
  });

  test("lengths are checked before anything is allocated", () => {
    const huge = new Writer().u64(2n ** 63n).bytes();
    expect(() => new Reader(huge).blob(2 ** 40, "b")).toThrow(/over/);
    const large = new Writer().u64(2n ** 40n).bytes();
    expect(() => new Reader(large).blob(2 ** 40, "b")).toThrow(/missing/);
    expect(() => new Reader(large).hashes(2 ** 40, "h")).toThrow(/missing/);
    expect(() => new Reader(new Writer().u32(1025).bytes()).text()).toThrow(/1025/);
    expect(() => {
      new Reader(layout).tag("y/1");
    }).toThrow(RefusedError);
  });

  test("a writer writes no text of more than 1024 bytes, and no number that is no u64", () => {
    expect(() => new Writer().text("é".repeat(513))).toThrow(RefusedError);
    expect(() => new Writer().u64(-1)).toThrow(RefusedError);
    expect(() => new Writer().u64(2n ** 64n)).toThrow(RefusedError);
    expect(() => new Writer().hash(new Uint8Array(31))).toThrow(RefusedError);
  });
});

import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { quantityOf, type Contract } from "../../src/operators/element.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail, hexOf, valueOf } from "./calls.ts";
import { goldenCalls, sample } from "./golden.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
const FOLDER = new URL("../../../vectors/kernels/", import.meta.url);
const FILES = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));

/** Compares golden elements; adds the names of the operators to `met`. */
function compare(path: string, contract: Contract, met: Set<string>): void {
  const wrong: string[] = [];
  let count = 0;
  for (const { name, call, operands, outputs } of goldenCalls(path, TABLE)) {
    met.add(call.operator.name);
    outputs.forEach((tensor, output) => {
      for (const position of sample(tensor.elements.length)) {
        const quantity = quantityOf(contract, { call, output, position });
        const bits = valueOf(quantity ?? fail(`${name} has no quantity`), operands);
        const want = tensor.elements[position] ?? fail("no element");
        count += 1;
        if (bits !== want) {
          const [found, due] = [bits, want].map((one) => hexOf(tensor.dtype, one));
          wrong.push(`${name}[${output}][${position}]: ${found ?? ""}, not ${due ?? ""}`);
        }
      }
    });
  }
  expect(wrong.slice(0, 20)).toEqual([]);
  expect(count).toBeGreaterThan(100);
  if (process.env["COUNT"] !== undefined) console.log(`${path}: ${count} elements`);
}

describe("golden elements of ordered/1 (vectors/kernels)", () => {
  const met = new Set<string>();

  test.each(FILES)("%s", (file) => {
    compare(`kernels/${file.replace(".json", "")}`, { family: "ordered" }, met);
  });

  test("every operator has golden calls", () => {
    const missing = [...TABLE.keys()].filter((name) => !met.has(name));
    expect(missing).toEqual([]);
  });
});

test.each([27, 32])("golden elements of rounded/1 (vectors/rounded), B = %i", (B) => {
  compare(`rounded/grid-${B}`, { family: "rounded", B }, new Set());
});

test.each([8, 15, 22])("golden elements of exact/1 (vectors/exact), B = %i", (B) => {
  compare(`exact/b-${B}`, { family: "exact", B }, new Set());
});

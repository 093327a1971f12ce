import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { orderedQuantity } from "../../src/operators/element.ts";
import { readTable } from "../../src/operators/read.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail, hexOf, valueOf } from "./calls.ts";
import { goldenCalls, sample } from "./golden.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
const FOLDER = new URL("../../../vectors/kernels/", import.meta.url);
const FILES = readdirSync(FOLDER).filter((name) => name.endsWith(".json"));

describe("golden elements of ordered/1 (vectors/kernels)", () => {
  const met = new Set<string>();

  test.each(FILES)("%s", (file) => {
    const wrong: string[] = [];
    let count = 0;
    for (const golden of goldenCalls(`kernels/${file.replace(".json", "")}`, TABLE)) {
      met.add(golden.call.operator.name);
      golden.outputs.forEach((tensor, output) => {
        for (const position of sample(tensor.elements.length)) {
          const quantity = orderedQuantity({ call: golden.call, output, position });
          const bits = valueOf(quantity ?? fail(`${golden.name} has no quantity`), golden.operands);
          const want = tensor.elements[position] ?? fail("no element");
          count += 1;
          if (bits !== want) {
            const [found, due] = [bits, want].map((one) => hexOf(tensor.dtype, one));
            wrong.push(`${golden.name}[${output}][${position}]: ${found ?? ""}, not ${due ?? ""}`);
          }
        }
      });
    }
    expect(wrong.slice(0, 20)).toEqual([]);
    expect(count).toBeGreaterThan(0);
  });

  test("every operator has golden calls", () => {
    const missing = [...TABLE.keys()].filter((name) => !met.has(name));
    expect(missing).toEqual([]);
  });
});

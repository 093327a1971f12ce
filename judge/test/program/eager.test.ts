/** The lazy expansion against one that makes all nodes in order (PROGRAM 6.7). */
import { expect, test } from "vitest";

import { toUtf8 } from "../../src/bytes.ts";
import { expansionOf, type ExpandedNode } from "../../src/program/expansion.ts";
import type { Source } from "../../src/program/program.ts";
import { readProgram } from "../../src/program/read.ts";
import { stepProgramOf } from "../../src/program/step.ts";
import type { ProgramText } from "../../src/program/text.ts";
import { orRefused, TABLE } from "./cases.ts";

const TEXT = `tallystick program 2
contract ordered/1-draft.1
input batch batch.x f32[2,3]
input state buffer.n f32[2,3]
input state param.w f32[2,3]
input rng rng i64[2]
input scalar scalar.lr f64[]
micro 5
carry buffer.n %1
%0 = tallystick.dropout_mask(@rng){draw=2, p=0x1.0000000000000p-2, shape=[2,3]} : bool[2,3]
%1 = tallystick.mask_scale(@buffer.n, %0){scale=0x1.0000000000000p+1} : f32[2,3]
%2 = tallystick.uniform(@rng){draw=0, high=0x1.0000000000000p+0, low=0x0.0p+0, shape=[2,3]} : f32[2,3]
%3 = aten.add.Tensor(@batch.x, %2){alpha=0x1.0000000000000p+0} : f32[2,3]
%4 = aten.native_layer_norm(%3, none, none){eps=0x1.4f8b588e368f1p-17, normalized_shape=[3]} : f32[2,3], f32[2,1], f32[2,1]
%5 = aten.mul.Tensor(@param.w, @buffer.n) : f32[2,3]
%6 = tallystick.fold(%4.0){mean=true} : f32[2,3]
%7 = aten.sum(%6) : f32[]
%8 = tallystick.fold(%4.2){mean=false} : f32[2,1]
%9 = aten.mul.Tensor(%5, %8) : f32[2,3]
%10 = tallystick.fold(%1){mean=true} : f32[2,3]
%11 = tallystick.sgd_step(%9, %10, none, @scalar.lr){dampening=0x0.0p+0, momentum=0x0.0p+0, nesterov=false, weight_decay=0x0.0p+0} : f32[2,3]
%12 = tallystick.commit(%1, %11) : none
output buffer.n %1
output loss %7
output param.w %11
end
`;

const DRAWS = 3n;

/** All nodes, one after the other, each value being what the list says at that place. */
function eager(text: ProgramText, V: number): ExpandedNode[] {
  const made: ExpandedNode[] = [];
  const size = text.section?.nodes ?? 0;
  const carries = new Map(text.section?.carries.map(({ name, value }) => [name, value]));
  const seen: Map<Source, Source>[] = [];
  const valueOf = (source: Source, values: Map<Source, Source> | undefined): Source =>
    source.from === "input" ? source : (values?.get(source) ?? source);
  /** Values of the text are one object each, so that they are found as they are. */
  const sources = new Set(
    [...text.nodes.flatMap(({ operands }) => operands), ...[...carries.values()]].filter(
      (source): source is Source => source !== null,
    ),
  );
  const add = (node: ExpandedNode): number => made.push(node) - 1;
  const note = (values: Map<Source, Source>, index: number, place: number): void => {
    for (const source of sources) {
      if (source.from === "node" && source.node === index)
        values.set(source, { ...source, node: place });
    }
  };
  for (let v = 0; v < V; v++) {
    const values = new Map<Source, Source>();
    for (const [index, { operator, attributes, operands }] of text.nodes.slice(0, size).entries()) {
      const draw = attributes.get("draw");
      const own = new Map(attributes);
      if (typeof draw === "bigint") own.set("draw", BigInt(v) * DRAWS + draw);
      const read = operands.map((source): Source | null => {
        if (source?.from !== "input") return source && valueOf(source, values);
        const carried = carries.get(source.name);
        if (source.name.startsWith("batch.")) return { ...source, name: `${source.name}#${v}` };
        return v > 0 && carried ? valueOf(carried, seen[v - 1]) : source;
      });
      note(values, index, add({ operator, attributes: own, operands: read }));
    }
    seen.push(values);
  }
  const last = new Map(seen.at(-1));
  for (const [k, { operator, attributes, operands }] of text.nodes.slice(size).entries()) {
    let read = operands.map((source) => source && valueOf(source, last));
    let own = attributes;
    const [folded] = operands;
    if (operator === "tallystick.fold" && folded) {
      let values = seen.map((one) => valueOf(folded, one));
      while (values.length > 256) {
        const level: Source[] = [];
        for (let at = 0; at < values.length; at += 256) {
          const block = values.slice(at, at + 256);
          const node = add({ operator, attributes: new Map([["mean", false]]), operands: block });
          level.push({ from: "node", node, output: 0 });
        }
        values = level;
      }
      if (V > 256 && attributes.get("mean") === true) {
        own = new Map([["count", BigInt(V)], ...attributes]);
      }
      read = values;
    }
    note(last, size + k, add({ operator, attributes: own, operands: read }));
  }
  return made;
}

const program = readProgram(toUtf8(TEXT), TABLE);

test.each([1, 2, 3, 255, 256, 257, 511, 512, 513, 1025])("%d micro-batches", (V) => {
  const expansion = expansionOf(program.text, V, TABLE);
  const nodes = eager(program.text, V);
  expect(expansion.nodeCount).toBe(nodes.length);
  for (const [k, node] of nodes.entries()) {
    const { operator, attributes, operands } = expansion.node(k);
    const found = [operator, [...attributes], operands];
    expect(found).toEqual([node.operator, [...node.attributes], node.operands]);
  }
});

test("a program of 65536 micro-batches is not made at once", () => {
  const step = stepProgramOf(program, 65536, TABLE);
  expect(step.nodeCount).toBe(65536 * 5 + 8 + 3 * 256);
  expect(step.batchInput("batch.x#65535")).toEqual({ first: 131070, field: "x" });
  for (const name of ["batch.x", "batch.x#65536", "batch.x#01", "rng#0"]) {
    expect(orRefused(() => step.input(name))).toBe("refused");
  }
  expect(step.nextStates[0]?.value).toEqual({ from: "node", node: 65535 * 5 + 1, output: 0 });
  const [block, last] = [step.node(65536 * 5 + 256), step.node(65536 * 5 + 257)];
  expect(block.operands.at(-1)).toEqual({ from: "node", node: 65535 * 5 + 4, output: 0 });
  expect(last.operands.at(-1)).toEqual({ from: "node", node: 65536 * 5 + 256, output: 0 });
  expect(new TextDecoder().decode(last.attributeBytes)).toBe("count=65536, mean=true");
  expect(orRefused(() => step.node(step.nodeCount - 1))).toBe("refused");
  expect(orRefused(() => step.node(step.nodeCount))).toBe("refused");
});

test("folds of 2^22 values in all, and of no more (6.8)", () => {
  const isMade = (folds: number, V: number): boolean => {
    const lines = [
      "tallystick program 2",
      "contract ordered/1-draft.1",
      "input batch batch.x f32[1]",
      "micro 1",
      "%0 = aten.sum(@batch.x) : f32[]",
      ...Array.from(
        { length: folds },
        (_, k) => `%${k + 1} = tallystick.fold(%0){mean=false} : f32[]`,
      ),
      "output loss %1",
      "end\n",
    ];
    const { text } = readProgram(toUtf8(lines.join("\n")), TABLE);
    return orRefused(() => expansionOf(text, V, TABLE)) !== "refused";
  };
  expect(isMade(64, 65536)).toBe(true);
  expect(isMade(65, 65536)).toBe(false);
  expect(isMade(64, 65537)).toBe(false);
});

test("2^20 inputs of an expansion, and no more (6.8, COMMITMENTS 11.1)", () => {
  const isMade = (more: readonly string[], V: number): boolean => {
    const names = Array.from({ length: 16 }, (_, k) => `batch.${String.fromCharCode(97 + k)}`);
    const lines = [
      "tallystick program 2",
      "contract ordered/1-draft.1",
      ...names.map((name) => `input batch ${name} f32[1]`),
      ...more,
      "micro 1",
      "%0 = aten.sum(@batch.a) : f32[]",
      "%1 = tallystick.fold(%0){mean=false} : f32[]",
      "output loss %1",
      "end\n",
    ];
    const { text } = readProgram(toUtf8(lines.join("\n")), TABLE);
    return orRefused(() => expansionOf(text, V, TABLE)) !== "refused";
  };
  expect(isMade([], 65536)).toBe(true);
  expect(isMade(["input state w f32[1]"], 65535)).toBe(true);
  expect(isMade(["input state w f32[1]"], 65536)).toBe(false);
});

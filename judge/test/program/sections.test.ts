/** Sections of a log (COMMITMENTS 10.1), by hand. */
import { expect, test } from "vitest";

import { toUtf8 } from "../../src/bytes.ts";
import { readProgram } from "../../src/program/read.ts";
import { stepProgramOf } from "../../src/program/step.ts";
import { orRefused, TABLE } from "./cases.ts";

const textOf = (contract: string): string => `tallystick program 1
contract ${contract}
input batch batch.x f32[2,3]
input batch batch.y i64[2]
input state param.p f64[]
input state param.w f32[3,2]
%0 = aten.mm(@batch.x, @param.w) : f32[2,2]
%1 = aten.view(%0){size=[4]} : f32[4]
%2 = aten.gt.Scalar(%1){other=0x0.0p+0} : bool[4]
%3 = aten.where(%2, %1, %1) : f32[4]
%4 = aten.mul.Tensor(%3, %3) : f32[4]
%5 = aten.sum(@batch.y) : i64[]
%6 = aten.native_layer_norm(%4, none, none){eps=0x1.4f8b588e368f1p-17, normalized_shape=[4]} : f32[4], f32[1], f32[1]
%7 = tallystick.fold(%6.0, %4){mean=false} : f32[4]
%8 = aten.mean(%7) : f32[]
%9 = tallystick.beta_power(@param.p){beta=0x1.0000000000000p-1} : f64[]
%10 = tallystick.commit(%9, @param.w) : none
output loss %8
output param.p %9
output param.w @param.w
end
`;

function sections(contract: string): (readonly [number, number, number])[] {
  const program = stepProgramOf(readProgram(toUtf8(textOf(contract)), TABLE), 1, TABLE);
  return program.sections.map(({ node, output, elements }) => [node, output, elements]);
}

test("no contract but replay/1 has sections", () => {
  expect(sections("ordered/1-draft.1")).toEqual([]);
  expect(sections("rounded/1-draft.1;b=27")).toEqual([]);
  expect(sections("exact/1-draft.1;b=15")).toEqual([]);
});

test("the bounded form logs the f32 outputs of rounded operators (NUMERICS 13.1)", () => {
  expect(sections("replay/1-draft.1;b=27;form=bounded")).toEqual([
    [0, 0, 4],
    [8, 0, 1],
  ]);
});

test("the published form logs f32 outputs but those of movement and folds (NUMERICS 14.9)", () => {
  expect(sections("replay/1-draft.1;b=27;form=published;scale=binary;tau=5")).toEqual([
    [0, 0, 4],
    [4, 0, 4],
    [6, 0, 4],
    [6, 1, 1],
    [6, 2, 1],
    [8, 0, 1],
  ]);
});

test("a log of more than 131072 sections is refused (COMMITMENTS 11.1)", () => {
  const text = (sums: number): string =>
    [
      "tallystick program 1",
      "contract replay/1-draft.1;b=27;form=bounded",
      "input state w f32[2]",
      ...Array.from({ length: sums }, (_, k) => `%${k} = aten.sum(@w) : f32[]`),
      `%${sums} = tallystick.commit(@w) : none`,
      "output loss %0",
      "output w @w",
      "end",
      "",
    ].join("\n");
  const read = (sums: number): number | "refused" =>
    orRefused(() => {
      const program = readProgram(toUtf8(text(sums)), TABLE);
      return stepProgramOf(program, 1, TABLE).sections.length;
    });
  expect(read(131072)).toBe(131072);
  expect(read(131073)).toBe("refused");
});

/** Golden calls: the format of vectors/kernels/README.md. */
import { WIDTH, type Dtype } from "../../src/numbers/bits.ts";
import type { Call } from "../../src/operators/call.ts";
import { callOf } from "../../src/operators/element.ts";
import type { OperatorTable } from "../../src/operators/table.ts";
import { bytesOfVectors, jsonOfVectors } from "../vectors.ts";
import { attributeOf, fail, type Tensor } from "./calls.ts";

type TensorText = [Dtype, number[], number];

export interface GoldenCall {
  readonly name: string;
  readonly contract: string;
  readonly call: Call;
  readonly operands: readonly (Tensor | null)[];
  readonly outputs: readonly Tensor[];
}

/** The calls of `<path>.json`, with their operands and outputs. */
export function goldenCalls(path: string, table: OperatorTable): GoldenCall[] {
  const data = bytesOfVectors(`${path}.bin`);
  const tensor = ([dtype, shape, offset]: TensorText): Tensor => {
    const width = WIDTH[dtype];
    const count = shape.reduce((a, b) => a * b, 1);
    const elements = Array.from({ length: count }, (_, k) => {
      const at = offset + k * width;
      return width === 8 ? data.readBigUInt64LE(at) : BigInt(data.readUIntLE(at, width));
    });
    return { dtype, shape, elements };
  };
  const file = jsonOfVectors(`${path}.json`) as {
    contract: string;
    cases: {
      op: string;
      attrs: Record<string, unknown>;
      inputs: (TensorText | null)[];
      outputs: TensorText[];
    }[];
  };
  return file.cases.map(({ op, attrs, inputs, outputs }, k) => {
    const operator = table.get(op) ?? fail(`no operator ${op}`);
    const attributes = new Map(
      Object.entries(attrs).map(([name, value]) => [
        name,
        attributeOf(operator.attributes.get(name)?.kind ?? "", value),
      ]),
    );
    const operands = inputs.map((one) => one && tensor(one));
    const given = outputs.map(tensor);
    const call = callOf(operator, attributes, operands, given);
    const name = `${k} ${op}`;
    return { name, contract: file.contract, call, operands, outputs: given };
  });
}

/** Which elements are compared: all of a few, else the first 64 and a spread of others. */
export function* sample(count: number, all = 256): Generator<number> {
  if (count <= all) for (let k = 0; k < count; k++) yield k;
  else {
    for (let k = 0; k < 64; k++) yield k;
    for (let k = 0; k < 64; k++) yield 64 + Math.floor(((count - 64) * (k + 1)) / 64) - 1;
  }
}

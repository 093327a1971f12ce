/** Two witnesses of an extremum, and witnesses that are none (PROTOCOL 6.8, OPENING 4.7). */
import { describe, expect, test } from "vitest";
import type { Attribute } from "../../src/operators/attributes.ts";
import { callOf, quantityOf, readTable, type Quantity } from "../../src/operators/index.ts";
import { Writer } from "../../src/writer.ts";
import { fail, type Tensor } from "../operators/calls.ts";
import { jsonOfVectors } from "../vectors.ts";
import { play, type Operands } from "./element.ts";
import { answered } from "./prover.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
const [ZERO, ONE, TWO, NAN] = [0n, 0x3f800000n, 0x40000000n, 0x7fc00000n];
const MINUS_ZERO = 0x80000000n;

/** An extremum over one axis: its quantity and its operands. */
function extremum(name: "aten.amax" | "aten.amin" | "aten.argmax", ...elements: bigint[]) {
  const operands: Tensor[] = [{ dtype: "f32", shape: [elements.length], elements }];
  const dim: Attribute = name === "aten.argmax" ? 0n : [0n];
  const attributes = new Map<string, Attribute>([
    ["dim", dim],
    ["keepdim", false],
  ]);
  const outputs = [{ dtype: name === "aten.argmax" ? "i64" : "f32", shape: [] }] as const;
  const call = callOf(TABLE.get(name) ?? fail(name), attributes, operands, outputs);
  const contract = { family: "ordered" } as const;
  const quantity = quantityOf(contract, { call, output: 0, position: 0 }) ?? fail(name);
  return { quantity, operands };
}

type Statement = readonly [claim: bigint, witness: bigint];

/** Plays it with these claims and witnesses. */
function judged(of: { quantity: Quantity; operands: Operands }, ...stated: [Statement, Statement]) {
  const { quantity, operands } = of;
  const prover = ([claim, witness]: Statement) => ({
    claim,
    answer: (query: Parameters<typeof answered>[3]) =>
      query.kind === "values"
        ? new Writer().u64(BigInt.asUintN(64, witness)).bytes()
        : answered(quantity, operands, operands, query),
  });
  const provers = [prover(stated[0]), prover(stated[1])] as const;
  const { convictions, found } = play(quantity, operands, 0, 0, provers);
  const convicted = convictions.map(
    ({ party, clause, case: of }) => `${party} ${clause} ${of ?? "-"}`,
  );
  return { convicted: convicted.join("; "), found };
}

describe("6.8", () => {
  const max = extremum("aten.amax", ZERO, TWO, ONE, TWO);
  const min = extremum("aten.amin", ONE, ZERO, TWO);

  test("of two true witnesses the better one convicts the other, whichever comes first", () => {
    expect(judged(max, [TWO, 1n], [ONE, 2n]).convicted).toBe("1 6.8 3");
    expect(judged(max, [ONE, 2n], [TWO, 1n]).convicted).toBe("0 6.8 3");
    expect(judged(max, [ONE, 2n], [TWO, 3n]).convicted).toBe("0 6.8 3");
    expect(judged(max, [TWO, 3n], [ONE, 2n]).convicted).toBe("1 6.8 3");
    expect(judged(min, [ZERO, 1n], [ONE, 0n]).convicted).toBe("1 6.8 3");
    expect(judged(min, [TWO, 2n], [ONE, 0n]).convicted).toBe("0 6.8 3");
  });

  test("what decided is shown, and no value: only two elements were executed", () => {
    const { found } = judged(max, [TWO, 1n], [ONE, 2n]);
    expect([found.quantity, found.terms, found.value]).toEqual(["max", 2, ""]);
    expect(found.claimed).toEqual(["2.0 (0x40000000)", "1.0 (0x3f800000)"]);
  });

  test("a witness outside, or of another value", () => {
    for (const outside of [-1n, 4n, 1n << 62n]) {
      expect(judged(max, [TWO, 1n], [ONE, outside]).convicted).toBe("1 6.8 3");
      expect(judged(max, [ONE, outside], [TWO, 1n]).convicted).toBe("0 6.8 3");
      const { convicted, found } = judged(max, [ONE, outside], [TWO, outside]);
      expect(convicted).toBe("0 6.8 3; 1 6.8 3");
      expect([found.quantity, found.terms]).toEqual(["max", 0]);
    }
    expect(judged(max, [TWO, 1n], [ONE, 3n]).convicted).toBe("1 6.8 3");
    expect(judged(max, [ONE, 3n], [TWO, 1n]).convicted).toBe("0 6.8 3");
    const { convicted, found } = judged(max, [ZERO, 1n], [ONE, 1n]);
    expect(convicted).toBe("0 6.8 3; 1 6.8 3");
    expect([found.quantity, found.terms]).toEqual(["max", 2]);
  });

  test("a NaN is greater than all, and +0 than -0", () => {
    const strange = extremum("aten.amax", MINUS_ZERO, NAN, ZERO);
    expect(judged(strange, [NAN, 1n], [ZERO, 2n]).convicted).toBe("1 6.8 3");
    expect(judged(strange, [MINUS_ZERO, 0n], [NAN, 1n]).convicted).toBe("0 6.8 3");
    expect(judged(strange, [MINUS_ZERO, 0n], [ZERO, 2n]).convicted).toBe("0 6.8 3");
    expect(judged(strange, [ZERO, 2n], [MINUS_ZERO, 0n]).convicted).toBe("1 6.8 3");
  });

  test("an argmax is its own witness, and of equal elements the first one", () => {
    const index = extremum("aten.argmax", ZERO, TWO, ONE, TWO);
    const claims = (a: bigint, b: bigint) => judged(index, [a, 9n], [b, 9n]);
    expect(claims(1n, 3n).convicted).toBe("1 6.8 3");
    expect(claims(3n, 1n).convicted).toBe("0 6.8 3");
    expect(claims(2n, 3n).convicted).toBe("0 6.8 3");
    expect(claims(0n, 3n).convicted).toBe("0 6.8 3");
    expect(claims(3n, 0n).convicted).toBe("1 6.8 3");
    expect(claims(3n, 0n).found).toMatchObject({ claimed: ["3", "0"], value: "3", terms: 2 });
    expect(claims((1n << 64n) - 1n, 1n).convicted).toBe("0 6.8 3");
    expect(claims(1n, 4n).convicted).toBe("1 6.8 3");
  });
});

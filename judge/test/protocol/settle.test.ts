/** An honest prover and a liar about one element, over golden calls, under every contract. */
import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { WIDTH, type Bits, type Dtype } from "../../src/numbers/bits.ts";
import {
  callOf,
  quantityOf,
  readTable,
  type Attribute,
  type Contract,
  type Quantity,
  type TensorType,
} from "../../src/operators/index.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import { canonicalValues } from "../../src/tensors.ts";
import { jsonOfVectors } from "../vectors.ts";
import { fail, valueOf } from "../operators/calls.ts";
import { goldenCalls } from "../operators/golden.ts";
import { play, type Operands, type Prover } from "./element.ts";
import { answered, bytesOf } from "./prover.ts";

const TABLE = readTable(jsonOfVectors("operators.json"));
const KERNELS = readdirSync(new URL("../../../vectors/kernels/", import.meta.url))
  .filter((name) => name.endsWith(".json"))
  .map((name) => `kernels/${name.replace(".json", "")}`);

/** Operands of which some floats are others. */
function altered(operands: Operands): Operands {
  return operands.map((tensor) =>
    tensor?.dtype !== "f32" && tensor?.dtype !== "f64"
      ? tensor
      : { ...tensor, elements: tensor.elements.map((bits, k) => (k % 3 === 1 ? bits : bits ^ 1n)) },
  );
}

/** What a prover states whose operands these are, if they are ones that no clause refuses. */
function prover(quantity: Quantity, own: Operands, agreed: Operands): Prover {
  return {
    claim: valueOf(quantity, own),
    answer: (query) => answered(quantity, own, agreed, query),
  };
}

const flipped = (claim: Bits, dtype: Dtype): Bits =>
  dtype === "bool" ? claim ^ 1n : claim ^ (1n << BigInt(8 * WIDTH[dtype] - 9));

/** The liars about an element that has this value. */
function* liars(quantity: Quantity, operands: Operands): Generator<[string, Prover]> {
  const honest = prover(quantity, operands, operands);
  const dtype = quantity.dtype as Dtype;
  const claim = dtype === "u8" ? honest.claim ^ 1n : flipped(honest.claim, dtype);
  yield ["a false value", { ...honest, claim }];
  for (const which of [0, 1]) {
    let asked = 0;
    const answer = (query: Query): Uint8Array => {
      const body = Uint8Array.from(honest.answer(query));
      if (query.kind !== "values" || asked++ !== which) return body;
      // The lowest bit of the last value, where it has one.
      const last = body.length - 1;
      return body.map((byte, k) => (k === last ? byte ^ 1 : byte));
    };
    yield [`a false part in answer ${which}`, { claim, answer }];
  }
  const other = altered(operands);
  const own = prover(quantity, other, operands);
  if (own.claim !== honest.claim) yield ["other operands", own];
}

/** Every liar about some elements of some calls, in both seats; the kinds of quantities met. */
function convictsLiars(path: string, contract: Contract, every: number): Set<string> {
  const met = new Set<string>();
  goldenCalls(path, TABLE).forEach(({ name, call, operands, outputs }, ordinal) => {
    // Operands that are not canonical have no digest in a game (COMMITMENTS 3.3).
    const isCanonical = operands.every((one) => !one || canonicalValues(one.dtype, bytesOf(one)));
    if (ordinal % every !== 0 || !isCanonical) return;
    outputs.forEach((tensor, output) => {
      const position = tensor.elements.length - 1;
      if (position < 0) return;
      const quantity = quantityOf(contract, { call, output, position }) ?? fail(name);
      met.add(quantity.kind);
      const honest = prover(quantity, operands, operands);
      for (const [lie, liar] of liars(quantity, operands)) {
        for (const seat of [0, 1] as Party[]) {
          const provers = seat === 0 ? ([liar, honest] as const) : ([honest, liar] as const);
          const { convictions, found } = play(quantity, operands, position, output, provers);
          const convicted = convictions.map(({ party }) => party);
          const about = `${name}, ${lie}, seat ${seat}: ${JSON.stringify(convictions)}`;
          // Under a published log a false value within reach is no lie (PROTOCOL 6.12).
          if (quantity.kind !== "logged" || convicted.length > 0) {
            expect(convicted, about).toEqual([seat]);
          }
          expect(found.quantity, about).not.toBeNull();
        }
      }
    });
  });
  return met;
}

describe("ordered/1", () => {
  test.each(KERNELS)("%s", (path) => {
    // Of stored types every fifth call holds a NaN that is not canonical.
    const every = path === "kernels/stored" ? 1 : 5;
    expect(convictsLiars(path, { family: "ordered" }, every).size).toBeGreaterThan(0);
  });
});

describe("the other contracts", () => {
  const contracts: Contract[] = [
    { family: "rounded", B: 27 },
    { family: "bounded", B: 27 },
    { family: "published", B: 27 },
    { family: "exact", B: 15 },
  ];
  test.each(contracts)("$family", (contract) => {
    for (const path of ["kernels/dot", "kernels/reduction", "kernels/loss", "kernels/composite"]) {
      convictsLiars(path, contract, 7);
    }
  });
});

describe("sums of nothing are +0, and nobody is asked (4.4.2, 4.5)", () => {
  const floats: Operands[number] = { dtype: "f32", shape: [0, 3], elements: [] };
  const targets: Operands[number] = { dtype: "i64", shape: [0], elements: [] };
  const loss = { ignore_index: -100n, reduction: "sum" };
  test.each([
    ["tree", "aten.sum", {}, [floats], 1],
    ["terms", "tallystick.cross_entropy", loss, [floats, targets], 3],
  ] as const)("%s of %s", (kind, name, attributes, operands, count) => {
    const scalar: TensorType = { dtype: "f32", shape: [] };
    const outputs = [scalar, targets, targets].slice(0, count);
    const given = new Map<string, Attribute>(Object.entries(attributes));
    const call = callOf(TABLE.get(name) ?? fail(name), given, operands, outputs);
    const ordered = { family: "ordered" } as const;
    const quantity = quantityOf(ordered, { call, output: 0, position: 0 }) ?? fail(name);
    expect(quantity.kind).toBe(kind);
    const answer = (): Uint8Array => fail("a query");
    const [none, one] = [0n, 0x3f800000n].map((claim): Prover => ({ claim, answer })) as [
      Prover, Prover,
    ]; // prettier-ignore
    for (const seat of [0, 1] as Party[]) {
      const provers = seat === 0 ? ([one, none] as const) : ([none, one] as const);
      const { convictions, found } = play(quantity, operands, 0, 0, provers);
      expect(convictions).toEqual([{ party: seat, clause: "6.5", case: "3" }]);
      expect([found.terms, found.value]).toEqual([0, "0.0 (0x00000000)"]);
    }
  });
});

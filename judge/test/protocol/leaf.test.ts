/** The disputed element of a tensor, and openings of operands (PROTOCOL 6.1, 6.5, OPENING 5). */
import { describe, expect, test } from "vitest";
import type { Outcome, Reading } from "../../src/operators/index.ts";
import { disputedElement, openedElement } from "../../src/protocol/leaf.ts";
import { execute, openElements, Openings } from "../../src/protocol/opening.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import { tensorDigest, type TensorType } from "../../src/tensors.ts";
import { Writer } from "../../src/writer.ts";
import type { Tensor } from "../operators/calls.ts";
import { inShort, lying, played, turned } from "./game.ts";
import { bytesOf, digestOf, openingBody, tensorAnswer } from "./prover.ts";

const AT = { step: 3, node: 2, side: 1, operand: 0 } as const;

const tensor = (count: number, changed: Record<number, bigint> = {}): Tensor => ({
  dtype: "f32",
  shape: [count],
  elements: Array.from({ length: count }, (_, k) => changed[k] ?? BigInt(k)),
});

const MANY = 50000;
const FIRST = 33333;
const tensors = [tensor(MANY), tensor(MANY, { [FIRST]: 7n, [MANY - 1]: 1n })] as const;
const digests = [digestOf(tensors[0]), digestOf(tensors[1])] as const;
const BYTES = [bytesOf(tensors[0]), bytesOf(tensors[1])] as const;

const answer = (party: Party, query: Query): Uint8Array => tensorAnswer(BYTES[party], query);

describe("6.1", () => {
  const find = () => disputedElement(AT, digests, tensors[0]);

  test("the first element whose bytes differ", () => {
    const { result, rounds } = played(find(), answer);
    expect(result?.element).toBe(FIRST);
    expect(result?.values.map((bytes) => [...bytes])).toEqual([
      [0x35, 0x82, 0, 0],
      [7, 0, 0, 0],
    ]);
    const both = (kind: string): string => `0 ${kind}, 1 ${kind}`;
    expect(rounds).toEqual([both("tensor hashes"), both("tensor hashes"), both("leaf")]);
  });

  test.each([0, 1] as const)("false hashes and leaves, party %i", (liar) => {
    const lie = (kind: Query["kind"], of: (body: Uint8Array) => Uint8Array): string =>
      inShort(played(find(), lying(answer, liar, kind, of)));
    expect(lie("tensor hashes", turned(0))).toBe(`${liar} 6.1 -`);
    expect(lie("leaf", turned(100))).toBe(`${liar} 6.1 -`);
  });

  test("every cut and every longer body convicts by 2.7", () => {
    for (const kind of ["tensor hashes", "leaf"] as const) {
      for (let cut = 1; cut <= 64; cut++) {
        const short = lying(answer, 1, kind, (body) => body.subarray(0, body.length - cut));
        expect(inShort(played(find(), short)), `${kind} − ${cut}`).toBe("1 2.7 -");
      }
      const long = lying(answer, 0, kind, (body) => new Writer().raw(body).u8(0).bytes());
      expect(inShort(played(find(), long))).toBe("0 2.7 -");
    }
    const claims = lying(answer, 0, "leaf", (body) => body.map((byte, k) => (k < 8 ? 255 : byte)));
    expect(inShort(played(find(), claims))).toBe("0 2.7 -");
  });

  test("both are convicted where both are wrong", () => {
    const none = played(find(), () => new Uint8Array());
    expect(inShort(none)).toBe("0 2.7 -; 1 2.7 -");
  });

  test("a value that is not canonical", () => {
    const strange = tensor(10, { 4: 0xffc00000n });
    const pair = [bytesOf(tensor(10)), bytesOf(strange)] as const;
    const type: TensorType = strange;
    const both = [tensorDigest(type, pair[0]), tensorDigest(type, pair[1])] as const;
    const game = played(disputedElement(AT, both, type), (party, query) =>
      tensorAnswer(pair[party], query),
    );
    expect(game.rounds).toEqual(["0 leaf, 1 leaf"]);
    expect(inShort(game)).toBe("1 6.1 3");
  });

  test("an empty tensor has the digest of its type", () => {
    const type: TensorType = { dtype: "f32", shape: [0] };
    const due = tensorDigest(type, new Uint8Array());
    const game = played(disputedElement(AT, [due, new Uint8Array(32)], type, "2c"), answer);
    expect(inShort(game)).toBe("1 6.1 2c");
  });
});

describe("6.13: party 0 opens an element", () => {
  const open = (element: number) => openedElement(AT, digests[0], tensors[0], element);

  test.each([0, 511, 512, FIRST, 32 * 512, MANY - 1])("element %i", (element) => {
    const { result, rounds } = played(open(element), answer);
    expect([...(result ?? [])]).toEqual([element & 255, element >> 8, 0, 0]);
    expect(rounds.at(-1)).toBe("0 leaf");
  });

  test("what does not give the digest convicts party 0", () => {
    const lie = (kind: Query["kind"]): string =>
      inShort(played(open(FIRST), lying(answer, 0, kind, turned(-1))));
    expect([lie("tensor hashes"), lie("leaf")]).toEqual(["0 6.13 -", "0 6.13 -"]);
  });

  test("a value that is not canonical convicts both", () => {
    const strange = tensor(10, { 4: 0xffc00000n });
    const game = played(openedElement(AT, digestOf(strange), strange, 5), (_, query) =>
      tensorAnswer(bytesOf(strange), query),
    );
    expect(inShort(game)).toBe("0 6.13 3; 1 6.13 3");
  });
});

describe("6.5: openings", () => {
  test("operands that the operator refuses convict both", () => {
    // eslint-disable-next-line require-yield -- what it reads, it has read
    const refused = function* (): Reading<Outcome<bigint>> {
      return { refused: "an index outside of the axis" };
    };
    expect(inShort(played(execute(openings(), refused()), opened))).toBe("0 6.5 3; 1 6.5 3");
  });

  const [own] = tensors;
  const openings = (): Openings => new Openings(3, 2, [null, { type: own, digest: digests[0] }]);
  const opened = (_: Party, query: Query): Uint8Array =>
    openingBody(own, query.kind === "opening" ? query.leaves : []);
  const wanted = [0n, 49999n, 513n, 1n];
  const open = () => openElements(openings(), 1, wanted);

  test("elements in the order asked, one opening of the leaves that are not open yet", () => {
    const { result, rounds } = played(open(), opened);
    expect(result).toEqual(wanted);
    expect(rounds).toEqual(["0 opening"]);
    const same = openings();
    expect(played(openElements(same, 1, [5n]), opened).rounds.length).toBe(1);
    expect(played(openElements(same, 1, [511n, 5n]), opened).rounds.length).toBe(0);
    expect(played(openElements(same, 1, [512n]), opened).rounds.length).toBe(1);
    expect(played(openElements(same, 1, []), opened).rounds.length).toBe(0);
    // No element of an operand that is absent is none.
    expect(played(openElements(same, 0, []), opened).result).toEqual([]);
  });

  test("a position outside convicts both", () => {
    for (const at of [-1n, BigInt(MANY)]) {
      expect(inShort(played(openElements(openings(), 1, [at]), opened))).toBe("0 6.5 3; 1 6.5 3");
    }
  });

  test("other values, other leaves, cuts", () => {
    const lie = (of: (body: Uint8Array) => Uint8Array): string =>
      inShort(played(open(), lying(opened, 0, "opening", of)));
    expect(lie(turned(200))).toBe("0 6.5 -");
    expect(lie(turned(-1))).toBe("0 6.5 -");
    expect(lie((body) => body.subarray(0, body.length - 1))).toBe("0 2.7 -");
    const others = played(open(), () => openingBody(own, [0, 2, 97]));
    expect(inShort(others)).toBe("0 2.7 -");
    for (let length = 0; length < 80; length++) {
      expect(lie((body) => body.subarray(0, length))).toBe("0 2.7 -");
    }
  });

  test("a value that is not canonical convicts both", () => {
    const strange = tensor(10, { 4: 0xffc00000n });
    const bad = new Openings(3, 2, [{ type: strange, digest: digestOf(strange) }]);
    const game = played(openElements(bad, 0, [0n]), () => openingBody(strange, [0]));
    expect(inShort(game)).toBe("0 6.5 3; 1 6.5 3");
  });
});

/** Logs of a step, entries that differ, and states without their log chains (PROTOCOL 6.10 to 6.14). */
import { describe, expect, test } from "vitest";
import { concatBytes } from "../../src/bytes.ts";
import type { Terms } from "../../src/job/terms.ts";
import { logDigest, sectionDigest, type LogEntry, type LogSection } from "../../src/logs.ts";
import { callOf, quantityOf, type Logged } from "../../src/operators/index.ts";
import type { StepProgram } from "../../src/program/program.ts";
import type { Below } from "../../src/protocol/below.ts";
import { goBeyond } from "../../src/protocol/beyond.ts";
import { judgeEntries, type OpenedNode } from "../../src/protocol/entries.ts";
import { Found } from "../../src/protocol/found.ts";
import { judgeEntry } from "../../src/protocol/logged.ts";
import { openLogs } from "../../src/protocol/logs.ts";
import type { StepContext } from "../../src/protocol/node.ts";
import { Openings } from "../../src/protocol/opening.ts";
import { judgeOutput } from "../../src/protocol/output.ts";
import type { Play } from "../../src/protocol/play.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import {
  CHAIN_TYPE,
  chainDigest,
  extendLogChain,
  LOG_CHAIN,
  LOSS_CHAIN,
  slotLeaf,
  slotOrder,
  stateRoot,
} from "../../src/state.ts";
import { Writer } from "../../src/writer.ts";
import { inclusionProof } from "../inclusion.ts";
import { fail, valueOf, type Tensor } from "../operators/calls.ts";
import { inShort, lying, played, turned, type Played } from "./game.ts";
import {
  CONTRACT,
  filled,
  loggedSection,
  MM,
  operandsOf,
  productOf,
  termsOf,
  THREE,
} from "./madeup.ts";
import { answered, bytesOf, digestOf, tensorAnswer } from "./prover.ts";

const STEP = 4;

/** A product whose elements are all a little above 3. */
const WIDE = 5000;
const OPERANDS = operandsOf(WIDE);
const NODE = productOf(WIDE);
const OUTPUT = filled(THREE, 1, WIDE);
const SECTIONS: readonly LogSection[] = [
  { node: 0, output: 0, elements: WIDE, form: "bounded" },
  { node: 1, output: 0, elements: WIDE, form: "bounded" },
  { node: 2, output: 0, elements: 0, form: "bounded" },
];

const program: StepProgram = {
  digest: new Uint8Array(32),
  nodeCount: 4,
  lastMicroBatch: 0,
  node: () => NODE,
  input: () => fail("no input"),
  batchInput: () => fail("no input"),
  nextStates: [],
  loss: { from: "node", node: 0, output: 0 },
  sections: SECTIONS,
};

const NAMES = slotOrder([LOSS_CHAIN, LOG_CHAIN, "param.a", "param.b"]);

const terms: Terms = {
  ...termsOf(new Uint8Array(32)),
  steps: 50,
  slots: new Map(NAMES.map((name) => [name, CHAIN_TYPE])),
  step: () => fail("no step"),
};

/** A state of a log chain and one other content. */
function state(chain: Uint8Array, content = 0) {
  const digests = new Map<string, Uint8Array>();
  for (const name of NAMES) digests.set(name, new Uint8Array(32).fill(content));
  digests.set(LOG_CHAIN, chainDigest(chain));
  const leaves = NAMES.map((name) => slotLeaf(name, digests.get(name) ?? fail(name)));
  return {
    root: stateRoot(digests),
    proof: inclusionProof(leaves, NAMES.indexOf(LOG_CHAIN)),
    digest: chainDigest(chain),
  };
}

/** A party's log of the step: entries of its second section; of the others only a digest may lie. */
function log(entries: readonly LogEntry[], lies: Readonly<Record<number, Uint8Array>> = {}) {
  const logged = SECTIONS.map((section, k) => loggedSection(section, k === 1 ? entries : []));
  const sections = logged.map(({ digest }, k) => lies[k] ?? digest);
  const before = new Uint8Array(32).fill(9);
  const after = extendLogChain(before, STEP, logDigest(STEP, sections));
  const states = [state(before), state(after)] as const;
  const answer = (query: Query): Uint8Array => {
    if (query.kind === "log") {
      const out = new Writer().hash(before).hashes(states[0].proof);
      return out.hashes(sections).hashes(states[1].proof).bytes();
    }
    if (query.kind !== "log block" && query.kind !== "log hashes") return fail(query.kind);
    return (logged[query.section] ?? fail("no section")).answer(query);
  };
  return { root: states[1].root, before: states[0].root, answer };
}

type Log = ReturnType<typeof log>;

const contextOf = (a: Log, b: Log): StepContext => ({
  terms,
  step: STEP,
  program,
  before: [a.before, b.before],
  after: [a.root, b.root],
  found: new Found(),
});

/** All answers of parties with these logs and these outputs. */
const answers =
  (logs: readonly [Log, Log], outputs: readonly [Tensor, Tensor]) =>
  (party: Party, query: Query): Uint8Array => {
    if (query.kind === "leaf" || query.kind === "tensor hashes") {
      return tensorAnswer(bytesOf(outputs[party]), query);
    }
    if (query.kind === "values" || query.kind === "opening") {
      const position = query.kind === "values" ? query.element : 0;
      const call = callOf(MM, NODE.attributes, OPERANDS, [OUTPUT]);
      const quantity = quantityOf(CONTRACT, { call, output: 0, position }) ?? fail("no quantity");
      return answered(quantity, OPERANDS, OPERANDS, query);
    }
    return logs[party].answer(query);
  };

const NONE = log([]);
const record: OpenedNode = {
  isInTree: true,
  isOfProgram: true,
  inputs: OPERANDS.map(digestOf),
  outputs: [digestOf(OUTPUT)],
};

function* judged(at: StepContext, own: OpenedNode): Play<void> {
  const logs = yield* openLogs(at);
  // eslint-disable-next-line require-yield -- the node is at hand
  yield* judgeEntries(at, logs, function* (): Play<OpenedNode> {
    return own;
  });
}

describe("6.10", () => {
  const open = (lie = answers([NONE, NONE], [OUTPUT, OUTPUT])): Played<unknown> =>
    played(openLogs(contextOf(NONE, NONE)), lie);
  const honest = answers([NONE, NONE], [OUTPUT, OUTPUT]);

  test("honest logs are proved", () => {
    expect(inShort(open())).toBe("");
  });

  test("every byte of an answer that is another convicts", () => {
    const length = honest(1, { kind: "log", step: STEP }).length;
    for (let at = 0; at < length; at++) {
      const { convictions } = open(lying(honest, 1, "log", turned(at)));
      expect(convictions.map(({ party }) => party)).toEqual([1]);
      expect(["2.7", "6.10"]).toContain(convictions[0]?.clause);
    }
    for (let cut = 0; cut < length; cut++) {
      const short = lying(honest, 0, "log", (body) => body.subarray(0, cut));
      expect(inShort(open(short))).toBe("0 2.7 -");
    }
  });
});

describe("6.11: a value by its own log", () => {
  const flipped = THREE + 0x100n;
  const at = 4500;
  const other: Tensor = {
    ...OUTPUT,
    elements: OUTPUT.elements.map((bits, k) => (k === at ? flipped : bits)),
  };
  const judge = (
    own: Log,
    lie?: (answer: ReturnType<typeof answers>) => ReturnType<typeof answers>,
  ) => {
    const at = { ...contextOf(own, NONE), node: 1 };
    const operands = OPERANDS.map((type) => ({ type, digest: digestOf(type) }));
    const outputs = [other, OUTPUT] as const;
    const honest = answers([own, NONE], outputs);
    const game = judgeOutput({ ...at, operands }, 0, [digestOf(other), digestOf(OUTPUT)]);
    return { game: played(game, lie?.(honest) ?? honest), found: at.found };
  };

  test("a false value, with and without an entry for it", () => {
    const entry = log([{ position: at, direction: 1 }]);
    for (const own of [NONE, entry]) {
      const { game, found } = judge(own);
      expect(inShort(game)).toBe("0 6.11 3");
      expect([found.element, found.quantity, found.terms]).toEqual([at, "R(exact sum)", 1]);
      expect(found.claimed).toEqual(["3.000061 (0x40400100)", "3.0 (0x40400000)"]);
    }
  });

  test("a block of another log, and one that is none", () => {
    const { game } = judge(NONE, (honest) => lying(honest, 0, "log block", turned(-1)));
    expect(inShort(game)).toBe("0 6.10 -");
  });

  test("too few and too many values", () => {
    for (const lie of [(b: Uint8Array) => b.subarray(1), (b: Uint8Array) => concatBytes(b, b)]) {
      const { game } = judge(NONE, (honest) => lying(honest, 1, "values", lie));
      expect(inShort(game)).toBe("1 2.7 -");
    }
  });
});

describe("6.13", () => {
  const judge = (
    own: Log,
    opened = record,
    lie?: (answer: ReturnType<typeof answers>) => ReturnType<typeof answers>,
    changes: Partial<StepContext> = {},
  ) => {
    const at = { ...contextOf(NONE, own), ...changes };
    const honest = answers([NONE, own], [OUTPUT, OUTPUT]);
    return { game: played(judged(at, opened), lie?.(honest) ?? honest), found: at.found };
  };
  const forged = log([{ position: 4500, direction: 1 }]);

  test("an entry that reads a far boundary is forged", () => {
    const { game, found } = judge(forged);
    expect(inShort(game)).toBe("1 6.13 3");
    expect([found.node, found.element, found.terms]).toEqual([1, 4500, 1]);
    expect(found.claimed).toEqual(["no entry", "entry 1"]);
  });

  test("an entry that says nothing convicts no one", () => {
    expect(judge(log([{ position: 4500, direction: 0 }])).game).toMatchObject({ convictions: [] });
  });

  test.each([WIDE, WIDE + 3])("an entry of element %i, which does not exist", (position) => {
    const { game, found } = judge(log([{ position, direction: 0 }]));
    expect(inShort(game)).toBe("1 6.13 3");
    expect([found.element, found.quantity]).toEqual([position, null]);
  });

  test("an element without the quantities of 6.11 convicts no party", () => {
    const ordered: Partial<StepContext> = { terms: { ...terms, contract: { family: "ordered" } } };
    const { game } = judge(forged, record, undefined, ordered);
    expect(game).toMatchObject({ convictions: [] });
    expect(game.rounds.at(-1)).toBe("0 leaf");
  });

  test("an element without a reach convicts no party", () => {
    const quantity: Logged = {
      kind: "logged",
      dtype: "f32",
      name: "R(x)",
      needs: [],
      // eslint-disable-next-line require-yield -- nothing is read
      *reach() {
        return { form: "none", value: undefined };
      },
    };
    const found = new Found();
    const openings = new Openings(STEP, 0, []);
    const below: Below = { output: 0, element: 0, openings, entries: [0, 2], found };
    expect(
      played(judgeEntry(below, quantity, THREE, []), () => fail("a query")).convictions,
    ).toEqual([]);
    expect(found).toMatchObject({
      quantity: "R(x)",
      claimed: ["entry 0", "entry 2"],
      choices: { left: 0, taken: 0 },
      terms: 1,
    });
  });

  test("a section without blocks has the digest that the program gives", () => {
    const [, , section] = SECTIONS;
    const digest = sectionDigest(section ?? fail("no section"), new Uint8Array(32));
    const { game } = judge(log([], { 2: digest }));
    expect(inShort(game)).toBe("1 6.13 -");
    expect(game.rounds).toEqual(["0 log, 1 log"]);
  });

  test("the record of the node", () => {
    expect(inShort(judge(forged, { ...record, isInTree: false }).game)).toBe("0 6.13 -");
    const both = judge(forged, { ...record, isOfProgram: false });
    expect(inShort(both.game)).toBe("0 6.13 1; 1 6.13 1");
  });

  test("hashes of blocks, their number and their cuts", () => {
    const lie = (of: (body: Uint8Array) => Uint8Array): string =>
      inShort(judge(forged, record, (honest) => lying(honest, 0, "log hashes", of)).game);
    expect(lie(turned(8))).toBe("0 6.13 -");
    expect(lie(turned(0))).toBe("0 2.7 -");
    for (let cut = 0; cut < 72; cut++) expect(lie((body) => body.subarray(0, cut))).toBe("0 2.7 -");
  });

  test("the opened value", () => {
    const lie = (kind: "leaf" | "tensor hashes"): string =>
      inShort(judge(forged, record, (honest) => lying(honest, 0, kind, turned(-1))).game);
    expect([lie("leaf"), lie("tensor hashes")]).toEqual(["0 6.13 -", "0 6.13 -"]);
  });
});

describe("6.14", () => {
  const chains = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)] as const;
  /** The states of party 1 have another content from this step on. */
  const stateOf = (party: Party, step: number, from: number) =>
    state(chains[party], party === 1 && step >= from ? 1 : 0);
  const beyond = (from: number, finals: readonly [number, number], liar?: Party) => {
    const asked: number[] = [];
    const game = goBeyond({
      terms,
      step: STEP,
      finals,
      after: [chainDigest(chains[0]), chainDigest(chains[1])],
      // eslint-disable-next-line require-yield -- the roots are at hand
      *rootsOf(step) {
        return [stateOf(0, step, from).root, stateOf(1, step, from).root];
      },
    });
    const answer = (party: Party, query: Query): Uint8Array => {
      if (query.kind !== "slot") return fail(query.kind);
      if (party === 0) asked.push(query.step);
      const { digest, proof } = stateOf(party, query.step, from);
      return new Writer().hash(digest).hashes(proof).bytes();
    };
    const own = liar === undefined ? answer : lying(answer, liar, "slot", turned(-1));
    return { ...played(game, own), asked };
  };

  test("every step is found, and no state is asked twice", () => {
    for (let from = STEP + 2; from <= 50; from++) {
      const { result, asked } = beyond(from, [50, 50]);
      expect(result).toMatchObject({ next: "step", step: from - 1 });
      expect(new Set(asked).size).toBe(asked.length);
    }
  });

  test("equal states after the smaller final step", () => {
    expect(beyond(99, [50, 50]).result).toEqual({ next: "undecided" });
    expect(beyond(99, [50, 47]).result).toEqual({ next: "ends" });
    expect(beyond(47, [50, 47]).result).toMatchObject({ next: "step", step: 46 });
  });

  test("an answer that does not prove the slot", () => {
    expect(inShort(beyond(20, [50, 50], 1))).toBe("1 6.14 -");
  });
});

test("the product of the tests is 3", () => {
  const call = callOf(MM, NODE.attributes, OPERANDS, [OUTPUT]);
  const quantity = quantityOf(CONTRACT, { call, output: 0, position: 4500 }) ?? fail("no quantity");
  expect(valueOf(quantity, OPERANDS)).toBe(THREE);
});

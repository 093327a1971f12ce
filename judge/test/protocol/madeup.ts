/**
 * Runs that a test makes up, under the bounded contract: no step is executed, and all that a party
 * states of its run fits together. `Party` answers every query about one.
 */
import { concatBytes } from "../../src/bytes.ts";
import type { RunCommitment } from "../../src/commitment.ts";
import type { Terms } from "../../src/job/terms.ts";
import {
  blockCount,
  logDigest,
  sectionDigest,
  writeBoundedBlock,
  type LogEntry,
  type LogSection,
} from "../../src/logs.ts";
import { leafHash, multiProof, rootOf } from "../../src/merkle.ts";
import { nodeDigest, type NodeRecord } from "../../src/nodes.ts";
import { callOf, quantityOf, readTable } from "../../src/operators/index.ts";
import type { ProgramNode, StepProgram } from "../../src/program/program.ts";
import { partsOf } from "../../src/protocol/parts.ts";
import type { Query, Range } from "../../src/protocol/queries.ts";
import { formOf } from "../../src/protocol/records.ts";
import { checkpointCount, checkpointLeaf, checkpointStep, runRoot } from "../../src/runs.ts";
import {
  CHAIN_START,
  CHAIN_TYPE,
  chainDigest,
  extendLogChain,
  extendLossChain,
  LOG_CHAIN,
  LOSS_CHAIN,
  slotLeaf,
  slotOrder,
  stateRoot,
} from "../../src/state.ts";
import { Writer } from "../../src/writer.ts";
import { inclusionProof } from "../inclusion.ts";
import { fail, type Tensor } from "../operators/calls.ts";
import { Signer } from "../session/golden.ts";
import { jsonOfVectors } from "../vectors.ts";
import { answered, bytesOf, digestOf, openingBody, tensorAnswer } from "./prover.ts";

export const CONTRACT = { family: "bounded", B: 20 } as const;
export const MM = readTable(jsonOfVectors("operators.json")).get("aten.mm") ?? fail("no aten.mm");

/** A tensor of one value. */
export const filled = (bits: bigint, ...shape: number[]): Tensor => ({
  dtype: "f32",
  shape,
  elements: Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => bits),
});

const ONE = 0x3f800000n;
const ABOVE_THREE_HALVES = 0x3fc00001n;
/** R of the product, a little below it. */
export const THREE = 0x40400000n;

/** A product of 1 × 2 and 2 × n, whose elements are all a little above 3: its operands. */
export const operandsOf = (n: number): Tensor[] => [
  filled(ONE, 1, 2),
  filled(ABOVE_THREE_HALVES, 2, n),
];

/** A node that is this product. */
export const productOf = (n: number, ...more: Tensor[]): ProgramNode => ({
  operator: MM,
  attributes: new Map(),
  attributeBytes: new Uint8Array(),
  operands: [
    { from: "input", name: "param.a" },
    { from: "input", name: "param.b" },
  ],
  operandTypes: operandsOf(n),
  outputs: [filled(THREE, 1, n), ...more],
});

/** The answers of kinds 14 and 15 about a section with these entries, and its digest. */
export function loggedSection(section: LogSection, entries: readonly LogEntry[]) {
  const blocks = Array.from({ length: blockCount(section) }, (_, block) =>
    writeBoundedBlock(block, entries),
  );
  const hashes = blocks.map((bytes) => leafHash(bytes));
  return {
    digest: sectionDigest(section, rootOf(hashes)),
    answer(query: Extract<Query, { kind: "log hashes" | "log block" }>): Uint8Array {
      if (query.kind === "log hashes") {
        return new Writer().u64(hashes.length).raw(partHashes(hashes, query.range)).bytes();
      }
      const out = new Writer().blob(blocks[query.block] ?? fail("no block"));
      return out.hashes(inclusionProof(hashes, query.block)).bytes();
    },
  };
}

/** The hashes of the parts of a range (2.4). */
const partHashes = (hashes: readonly Uint8Array[], range: Range): Uint8Array =>
  concatBytes(...partsOf(range).map(({ first, count }) => rootOf(hashes, first, first + count)));

const STOP = "control.stop";
const WIDE = 10;
const LOSS: Tensor = { dtype: "f32", shape: [], elements: [0n] };
const NODE = productOf(WIDE, LOSS);
const SECTION: LogSection = { node: 0, output: 0, elements: WIDE, form: "bounded" };
const STATES = ["param.a", "param.b", STOP];
const OPERANDS = operandsOf(WIDE);

const PROGRAM: StepProgram = {
  digest: new Uint8Array(32).fill(3),
  nodeCount: 2,
  lastMicroBatch: 0,
  node: () => NODE,
  input: () => ({ kind: "state", type: CHAIN_TYPE }),
  batchInput: () => fail("no batch"),
  nextStates: slotOrder(STATES).map((slot) => ({ slot, value: { from: "input", name: slot } })),
  loss: { from: "node", node: 0, output: 1 },
  sections: [SECTION],
};

export const STEPS = 20;

/** What a party's run is: everything in it that another run may have otherwise. */
export interface MadeUp {
  readonly final: number;
  /** How many checkpoints its commitment names, if not as many as the run has. */
  readonly count?: number;
  /** Entries of the log of a step. */
  readonly log: (step: number) => readonly LogEntry[];
  /** The bits of a step's loss. */
  readonly loss: (step: number) => number;
  /** The digest of `param.a` in a state. */
  readonly param: (step: number) => Uint8Array;
  /** From this state on `control.stop` is true. */
  readonly stops: number;
  /** The loss chain after a step, by the one that follows. */
  readonly lossChain: (step: number, due: Uint8Array) => Uint8Array;
  /** The log chain that COMMIT of a step has as its operand, by the one that it should be. */
  readonly logOperand: (step: number, due: Uint8Array) => Uint8Array;
}

const digests = OPERANDS.map(digestOf);

export const HONEST: MadeUp = {
  final: STEPS,
  log: () => [],
  loss: (step) => 0x3f800000 + step,
  param: () => digests[0] ?? fail("no operand"),
  stops: Infinity,
  lossChain: (_, due) => due,
  logOperand: (_, due) => due,
};

const boolTensor = (value: boolean): Tensor => ({
  dtype: "bool",
  shape: [],
  elements: [value ? 1n : 0n],
});

const chainTensor = (chain: Uint8Array): Tensor => ({
  ...CHAIN_TYPE,
  elements: Array.from(chain, BigInt),
});

export function termsOf(genesisRoot: Uint8Array, changes: Partial<Terms> = {}): Terms {
  const slots = slotOrder([LOSS_CHAIN, LOG_CHAIN, ...STATES]);
  return {
    format: 1,
    jobDigest: new Uint8Array(32),
    contract: CONTRACT,
    logs: "bounded",
    genesisRoot,
    steps: STEPS,
    checkpointInterval: 8,
    stopsOnNonFinite: false,
    stopsOnSlot: false,
    programs: [PROGRAM],
    data: [],
    slots: new Map(slots.map((name) => [name, CHAIN_TYPE])),
    step: () => ({
      program: PROGRAM,
      batchNumber: 0,
      data: null,
      record: () => fail("no record"),
      scalar: () => fail("no scalar"),
      key: [0n, 0n],
    }),
    ...changes,
  };
}

/** One state, and the chains in it. */
interface State {
  readonly slots: ReadonlyMap<string, Uint8Array>;
  readonly loss: Uint8Array;
  readonly log: Uint8Array;
}

/** A party with a run that is made up; it answers truly about it. */
export class MadeUpParty {
  readonly #states: State[] = [];
  readonly #terms: Terms;

  constructor(
    readonly run: MadeUp,
    changes: Partial<Terms> = {},
  ) {
    let loss: Uint8Array = CHAIN_START;
    let log: Uint8Array = CHAIN_START;
    for (let step = 0; step <= run.final; step++) {
      this.#states.push({ slots: this.#slots(step, loss, log), loss, log });
      loss = run.lossChain(step, extendLossChain(loss, step, run.loss(step)));
      log = extendLogChain(log, step, logDigest(step, [this.#section(step).digest]));
    }
    this.#terms = termsOf(this.root(0), changes);
  }

  get terms(): Terms {
    return this.#terms;
  }

  #slots(step: number, loss: Uint8Array, log: Uint8Array): Map<string, Uint8Array> {
    return new Map([
      [LOSS_CHAIN, chainDigest(loss)],
      [LOG_CHAIN, chainDigest(log)],
      ["param.a", this.run.param(step)],
      ["param.b", digests[1] ?? fail("no operand")],
      [STOP, digestOf(boolTensor(step >= this.run.stops))],
    ]);
  }

  #state(step: number): State {
    return this.#states[step] ?? fail(`no state ${step}`);
  }

  #section(step: number): ReturnType<typeof loggedSection> {
    return loggedSection(SECTION, this.run.log(step));
  }

  root(step: number): Uint8Array {
    return stateRoot(this.#state(step).slots);
  }

  #checkpoints(): { step: number; root: Uint8Array }[] {
    const { checkpointInterval } = this.#terms;
    const count = checkpointCount(this.run.final, checkpointInterval);
    return Array.from({ length: count }, (_, index) => {
      const step = checkpointStep(index, this.run.final, checkpointInterval);
      return { step, root: this.root(step) };
    });
  }

  commitment(signer: Signer): RunCommitment {
    const { jobDigest } = this.#terms;
    const [checkpoints, { final }] = [this.#checkpoints(), this.run];
    return {
      jobDigest,
      runRoot: runRoot(jobDigest, checkpoints),
      finalStep: final,
      finalStateRoot: this.root(final),
      checkpoints: this.run.count ?? checkpoints.length,
      signer: signer.key,
    };
  }

  #lossOf(step: number): Tensor {
    return { ...LOSS, elements: [BigInt(this.run.loss(step))] };
  }

  /** The records of a step's nodes. */
  #records(step: number): [NodeRecord, NodeRecord] {
    const [before, after] = [this.#state(step), this.#state(step + 1)];
    const product = {
      operator: NODE.operator.name,
      attributes: NODE.attributeBytes,
      inputs: digests,
      outputs: [filled(THREE, 1, WIDE), this.#lossOf(step)].map(digestOf),
    };
    const { operator, attributes } = formOf(PROGRAM, this.#terms.slots, 1);
    const slots = PROGRAM.nextStates.map(({ slot }) => after.slots.get(slot) ?? fail(slot));
    const chains = [before.loss, this.run.logOperand(step, before.log)].map(chainDigest);
    const commit = {
      operator,
      attributes,
      inputs: [...slots, digestOf(this.#lossOf(step)), ...chains],
      outputs: [chainDigest(after.loss), chainDigest(after.log), this.root(step + 1)],
    };
    return [product, commit];
  }

  #nodeHashes(step: number): Uint8Array[] {
    return this.#records(step).map((record, node) =>
      leafHash(nodeDigest(PROGRAM.digest, step, node, record)),
    );
  }

  #slotProof(step: number, name: string): Uint8Array[] {
    const { slots } = this.#state(step);
    const names = slotOrder(slots.keys());
    const leaves = names.map((own) => slotLeaf(own, slots.get(own) ?? fail(own)));
    return inclusionProof(leaves, names.indexOf(name));
  }

  answer(query: Query): Uint8Array {
    const out = new Writer();
    switch (query.kind) {
      case "checkpoints": {
        const all = this.#checkpoints();
        const roots = query.indices.map((index) => all[index]?.root ?? fail("no checkpoint"));
        const leaves = all.map(({ step, root }) => checkpointLeaf(step, root));
        return out
          .raw(concatBytes(...roots))
          .hashes(multiProof(leaves, query.indices))
          .bytes();
      }
      case "states":
        return concatBytes(...query.steps.map((step) => this.root(step)));
      case "loss": {
        const { step } = query;
        out.hash(this.#state(step).loss).u32(this.run.loss(step));
        return out.hashes(this.#slotProof(step + 1, LOSS_CHAIN)).bytes();
      }
      case "nodes":
        return out
          .u64(PROGRAM.nodeCount)
          .hash(rootOf(this.#nodeHashes(query.step)))
          .bytes();
      case "node hashes":
        return partHashes(this.#nodeHashes(query.step), query.range);
      case "node": {
        const record = this.#records(query.step)[query.node] ?? fail("no node");
        out.text(record.operator).blob(record.attributes);
        out.hashes(record.inputs).hashes(record.outputs);
        return out.hashes(inclusionProof(this.#nodeHashes(query.step), query.node)).bytes();
      }
      case "slot": {
        const digest = this.#state(query.step).slots.get(query.name) ?? fail(query.name);
        return out.hash(digest).hashes(this.#slotProof(query.step, query.name)).bytes();
      }
      case "log": {
        const { step } = query;
        out.hash(this.#state(step).log).hashes(this.#slotProof(step, LOG_CHAIN));
        out.hashes([this.#section(step).digest]);
        return out.hashes(this.#slotProof(step + 1, LOG_CHAIN)).bytes();
      }
      case "log hashes":
      case "log block":
        return this.#section(query.step).answer(query);
      case "leaf":
      case "tensor hashes":
        return tensorAnswer(bytesOf(filled(THREE, 1, WIDE)), query);
      case "opening":
        return openingBody(this.#operand(query.step, query.node, query.operand), query.leaves);
      case "values": {
        const call = callOf(MM, NODE.attributes, OPERANDS, NODE.outputs);
        const quantity = quantityOf(CONTRACT, { call, output: 0, position: query.element });
        return answered(quantity ?? fail("no quantity"), OPERANDS, OPERANDS, query);
      }
      default:
        return fail(query.kind);
    }
  }

  /** An operand that the referee opens: of the product, or of COMMIT the loss or its chain. */
  #operand(step: number, node: number, operand: number): Tensor {
    if (node === 0) return OPERANDS[operand] ?? fail("no operand");
    return operand === STATES.length ? this.#lossOf(step) : chainTensor(this.#state(step).loss);
  }
}

/** A job of very many slots: its COMMIT records are nearly as long as answers may be (5.3, 5.8). */
import { concatBytes, fromUtf8, toHex, toUtf8 } from "../../src/bytes.ts";
import { leafHash, rootOf } from "../../src/merkle.ts";
import { nodeDigest, type NodeRecord } from "../../src/nodes.ts";
import { readProgram } from "../../src/program/read.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import { checkpointLeaf, runRootByTree } from "../../src/runs.ts";
import { sha256 } from "../../src/sha256.ts";
import {
  CHAIN_START,
  chainDigest,
  CHAIN_TYPE,
  COMMIT,
  commitAttributes,
  LOG_CHAIN,
  LOSS_CHAIN,
  nextState,
  stateRoot,
} from "../../src/state.ts";
import { tensorDigest, writeOpening, type TensorType } from "../../src/tensors.ts";
import { Writer } from "../../src/writer.ts";
import { TABLE } from "../../test/program/cases.ts";
import { forged, jobWith, termsOf, type Claim, type Hostile } from "./forger.ts";
import { longestAnswer, stored } from "./replayed.ts";

/** Two records of so many digests and names, and two longest answers, fill evidence. */
const SLOTS = 90_000;
const LOSS_BITS = 0x3f800000;
const LOSS: TensorType = { dtype: "f32", shape: [] };

const NAMES = Array.from({ length: SLOTS }, (_, k) => `s${String(k).padStart(5, "0")}`);

/** A program that keeps all its slots as they are. */
function programText(contract: string): string {
  return [
    "tallystick program 1",
    contract,
    "input batch batch.x f32[1]",
    ...NAMES.map((name) => `input state ${name} f32[]`),
    "%0 = aten.sum(@batch.x) : f32[]",
    `%1 = tallystick.commit(${NAMES.map((name) => `@${name}`).join(", ")}) : none`,
    "output loss %0",
    ...NAMES.map((name) => `output ${name} @${name}`),
    "end\n",
  ].join("\n");
}

const lossBytes = new Writer().u32(LOSS_BITS).bytes();

/** The last answer is the one that decides, or the longest that there can be. */
export function wideJob(last: "true" | "longest"): Hostile {
  const { manifest: old, program: like } = stored("sums", "aten.mm, call 4: and false parts");
  const program = toUtf8(programText(fromUtf8(like).split("\n")[1] ?? ""));
  const digests = new Map(NAMES.map((name, k) => [name, sha256(new Writer().u32(k).bytes())]));
  const chains = [LOSS_CHAIN, LOG_CHAIN].map((name) => [name, chainDigest(CHAIN_START)] as const);
  const genesis = stateRoot(new Map([...digests, ...chains]));
  const manifest = jobWith(old, {
    program_digest: toHex(readProgram(program, TABLE).digest),
    genesis_root: toHex(genesis),
  });
  const terms = termsOf(manifest, program);
  const digest = terms.programs[0]?.digest ?? new Uint8Array();

  const start = { lossChain: CHAIN_START, logChain: CHAIN_START };
  const next = nextState({ step: 0, slots: digests, lossBits: LOSS_BITS, ...start });
  const lossDigest = tensorDigest(LOSS, lossBytes);
  const chainsAfter = [LOSS_CHAIN, LOG_CHAIN].map((name) => next.get(name) ?? new Uint8Array());
  const record = (party: Party): NodeRecord => ({
    operator: COMMIT,
    attributes: commitAttributes(NAMES),
    inputs: [...digests.values(), lossDigest, chainDigest(CHAIN_START), chainDigest(CHAIN_START)],
    outputs: [...chainsAfter, party === 0 ? stateRoot(next) : sha256(toUtf8("another state"))],
  });
  const records = [record(0), record(1)] as const;
  const sum = leafHash(sha256(toUtf8("the node before")));
  const commit = (party: Party): Uint8Array => leafHash(nodeDigest(digest, 0, 1, records[party]));
  const after = (party: Party): Uint8Array => records[party].outputs[2] ?? new Uint8Array();
  const states = (party: Party): Uint8Array[] => [genesis, after(party)];
  const claim = (party: Party): Claim => {
    const leaves = states(party).map((root, step) => checkpointLeaf(step, root));
    const root = runRootByTree(terms.jobDigest, 2, rootOf(leaves));
    return { runRoot: root, finalStep: 1, finalStateRoot: after(party), checkpoints: 2 };
  };

  const opening = (type: TensorType, bytes: Uint8Array): Uint8Array =>
    new Writer().blob(writeOpening({ type, leaves: [{ index: 0, bytes }], proof: [] })).bytes();
  const answer = (party: Party, query: Query): Uint8Array | undefined => {
    const out = new Writer();
    if (query.kind === "checkpoints") {
      return out
        .raw(concatBytes(...states(party)))
        .hashes([])
        .bytes();
    }
    if (query.kind === "nodes")
      return out
        .u64(2)
        .hash(rootOf([sum, commit(party)]))
        .bytes();
    if (query.kind === "node hashes") return out.hash(sum).hash(commit(party)).bytes();
    if (query.kind === "node") {
      const { attributes, inputs, operator, outputs } = records[party];
      out.text(operator).blob(attributes).hashes(inputs).hashes(outputs);
      return out.hashes([sum]).bytes();
    }
    if (query.kind !== "opening") return undefined;
    if (query.operand === SLOTS) return opening(LOSS, lossBytes);
    return last === "true" ? opening(CHAIN_TYPE, CHAIN_START) : longestAnswer(query);
  };
  const evidence = forged({ terms, arity: 2, claims: [claim(0), claim(1)], answer });
  const name = last === "true" ? "a state of 90,000 slots" : "the same, then a longest answer";
  return { name, evidence, manifest, program };
}

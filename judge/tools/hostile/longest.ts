/**
 * The game of most rounds: about a job with logs, of 2^40 steps and 2^20 + 1 checkpoints, by binary
 * search. Its first step is that of a stored game that 6.13 ends without a conviction. All later
 * states are forged: they differ in their log chains, and from step `LATER` on in all slots.
 */
import { concatBytes } from "../../src/bytes.ts";
import { leafHash, nodeHash, rootByInclusion, splitOf, subtreesOutside } from "../../src/merkle.ts";
import type { Query } from "../../src/protocol/queries.ts";
import type { Party } from "../../src/protocol/queries.ts";
import { inclusionLength } from "../../src/merkle.ts";
import { checkpointCount, checkpointLeaf, checkpointStep, runRootByTree } from "../../src/runs.ts";
import { sha256 } from "../../src/sha256.ts";
import { LOG_CHAIN, slotLeaf, stateRootByTree } from "../../src/state.ts";
import { Writer } from "../../src/writer.ts";
import { forged, jobWith, termsOf, type Hostile } from "./forger.ts";
import { longestAnswer, stored } from "./replayed.ts";

const STEPS = 2 ** 40;
const INTERVAL = 2 ** 20;
const LATER = 12_345;
const CASE = "withheld: a false value of a logged output, later, party 1";

const numbered = (...numbers: readonly number[]): Uint8Array =>
  sha256(numbers.reduce((out, number) => out.u64(number), new Writer()).bytes());

/** Checkpoints that a binary search between the first and the last one may ask for. */
const asked = (last: number): number[] =>
  Array.from({ length: Math.log2(last) + 1 }, (_, k) => 2 ** k);

/** A tree of whose leaves all but a few are one and the same. */
class SparseTree {
  readonly #common = new Map<number, Uint8Array>();

  constructor(
    readonly size: number,
    readonly leaves: ReadonlyMap<number, Uint8Array>,
  ) {}

  root(first: number, end: number): Uint8Array {
    const count = end - first;
    const isCommon = ![...this.leaves.keys()].some((leaf) => first <= leaf && leaf < end);
    const known = isCommon ? this.#common.get(count) : undefined;
    if (known !== undefined) return known;
    const half = first + (count > 1 ? splitOf(count) : 0);
    const root =
      count === 1
        ? (this.leaves.get(first) ?? leafHash(new Uint8Array()))
        : nodeHash(this.root(first, half), this.root(half, end));
    if (isCommon) this.#common.set(count, root);
    return root;
  }

  proof(leaves: readonly number[]): Uint8Array[] {
    return subtreesOutside(leaves, this.size).map(({ first, end }) => this.root(first, end));
  }
}

export function longestGame(): Hostile {
  const { answer: known, manifest: old, program } = stored("logs", CASE);
  const manifest = jobWith(old, { steps: STEPS, checkpoint_interval: INTERVAL });
  const terms = termsOf(manifest, program);
  const names = [...terms.slots.keys()];
  const [place, count] = [names.indexOf(LOG_CHAIN), names.length];

  const chain = (party: Party, step: number): Uint8Array => numbered(1, party, step);
  const path = (party: Party, step: number): Uint8Array[] =>
    Array.from({ length: inclusionLength(place, count) }, (_, k) =>
      numbered(2, step > LATER ? party : 0, step, k),
    );
  const stateOne = (party: Party): Uint8Array =>
    known(party, { kind: "states", steps: [1] }) ?? new Uint8Array();
  const root = (party: Party, step: number): Uint8Array => {
    if (step === 0) return terms.genesisRoot;
    if (step === 1) return stateOne(party);
    const leaf = slotLeaf(LOG_CHAIN, chain(party, step));
    const tree = rootByInclusion(leaf, place, count, path(party, step));
    return stateRootByTree(count, tree ?? new Uint8Array());
  };

  const checkpoints = checkpointCount(STEPS, INTERVAL);
  const trees = ([0, 1] as const).map((party) => {
    const leaves = [0, ...asked(checkpoints - 1)].map((index): [number, Uint8Array] => {
      const step = checkpointStep(index, STEPS, INTERVAL);
      return [index, checkpointLeaf(step, root(party, step))];
    });
    return new SparseTree(checkpoints, new Map(leaves));
  });
  const claims = ([0, 1] as const).map((party) => ({
    runRoot: runRootByTree(
      terms.jobDigest,
      checkpoints,
      trees[party]?.root(0, checkpoints) ?? new Uint8Array(),
    ),
    finalStep: STEPS,
    finalStateRoot: root(party, STEPS),
    checkpoints,
  }));
  const [a, b] = claims;
  if (a === undefined || b === undefined) throw new Error("two parties");

  const answer = (party: Party, query: Query): Uint8Array | undefined => {
    if (query.kind === "checkpoints") {
      const steps = query.indices.map((index) => checkpointStep(index, STEPS, INTERVAL));
      const roots = concatBytes(...steps.map((step) => root(party, step)));
      const proof = trees[party]?.proof(query.indices) ?? [];
      return new Writer().raw(roots).hashes(proof).bytes();
    }
    if (query.kind === "states") {
      return concatBytes(...query.steps.map((step) => root(party, step)));
    }
    if (query.kind === "slot") {
      return new Writer().hash(chain(party, query.step)).hashes(path(party, query.step)).bytes();
    }
    if ("step" in query && query.step === 0) return known(party, query);
    if (query.kind === "nodes") {
      return new Writer()
        .u64(terms.programs[0]?.nodeCount ?? 0)
        .hash(numbered(3, party))
        .bytes();
    }
    return longestAnswer(query);
  };
  const evidence = forged({ terms, arity: 2, claims: [a, b], answer });
  return { name: "most rounds, then the longest answers", evidence, manifest, program };
}

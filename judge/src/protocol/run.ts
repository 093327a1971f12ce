/** What a game knows of the parties' runs: checkpoints proved and states stated (PROTOCOL 3, 4). */
import { equalBytes } from "../bytes.ts";
import type { RunCommitment } from "../commitment.ts";
import type { Terms } from "../job/terms.ts";
import { checkpointStep, provesCheckpoints } from "../runs.ts";
import type { Found } from "./found.ts";
import { readCheckpoints, readStates, type Checkpoints } from "./bodies.ts";
import type { Play } from "./play.ts";
import type { Party, Query } from "./queries.ts";
import { askEach, convictWhere, forBoth, PARTIES, type Both } from "./rounds.ts";

/** The terms of a game, its parties, and what it finds on its way. */
export interface Game {
  readonly terms: Terms;
  readonly arity: number;
  readonly commitments: Both<RunCommitment>;
  readonly found: Found;
}

/** A party's answer of kind 1: the indices asked, and the proof that came with them. */
export interface ProvedCheckpoints {
  readonly indices: readonly number[];
  readonly proof: readonly Uint8Array[];
}

/** What one party has stated of its run. */
class Run {
  readonly #roots = new Map<number, Uint8Array>();
  readonly #indices = new Set<number>();

  constructor(
    readonly terms: Terms,
    readonly commitment: RunCommitment,
  ) {}

  stepOf(index: number): number {
    return checkpointStep(index, this.commitment.finalStep, this.terms.checkpointInterval);
  }

  hasProved(index: number): boolean {
    return this.#indices.has(index);
  }

  /** The root that the party has stated for a state, if it has. */
  rootOf(step: number): Uint8Array | undefined {
    return this.#roots.get(step);
  }

  state(step: number, root: Uint8Array): void {
    this.#roots.set(step, root);
  }

  /** Whether an answer of kind 1 gives the run root (3.3). */
  proves(indices: readonly number[], { roots, proof }: Checkpoints): boolean {
    const { jobDigest, checkpoints, runRoot } = this.commitment;
    const leaves = indices.map((index, k) => ({
      index,
      step: this.stepOf(index),
      root: roots[k] ?? new Uint8Array(),
    }));
    return provesCheckpoints(jobDigest, leaves, checkpoints, proof, runRoot);
  }

  prove(indices: readonly number[], roots: readonly Uint8Array[]): void {
    for (const [k, index] of indices.entries()) {
      this.#indices.add(index);
      this.state(this.stepOf(index), roots[k] ?? new Uint8Array());
    }
  }
}

export class Runs {
  readonly of: Both<Run>;

  constructor({ terms, commitments }: Game) {
    this.of = [new Run(terms, commitments[0]), new Run(terms, commitments[1])];
  }

  /** Parties prove checkpoints, each its own indices; a party without any is not asked (kind 1). */
  *prove(indices: Both<readonly number[]>): Play<Both<ProvedCheckpoints>> {
    const queries = forBoth((party): Query | undefined =>
      indices[party].length === 0 ? undefined : { kind: "checkpoints", indices: indices[party] },
    );
    const answers = yield* askEach(queries, (party, reader) =>
      readCheckpoints(indices[party].length)(reader),
    );
    const isFalse = (party: Party): boolean => {
      const answer = answers[party];
      return answer !== undefined && !this.of[party].proves(indices[party], answer);
    };
    convictWhere(forBoth(isFalse), "3.3", "0");
    return forBoth((party) => {
      const { roots, proof } = answers[party] ?? { roots: [], proof: [] };
      this.of[party].prove(indices[party], roots);
      return { indices: indices[party], proof };
    });
  }

  /** Parties state roots of states, each of its own steps (kind 2). */
  *state(steps: Both<readonly number[]>): Play<void> {
    const queries = forBoth((party): Query | undefined =>
      steps[party].length === 0 ? undefined : { kind: "states", steps: steps[party] },
    );
    const answers = yield* askEach(queries, (party, reader) =>
      readStates(steps[party].length)(reader),
    );
    for (const party of PARTIES) {
      for (const [k, step] of steps[party].entries()) {
        this.of[party].state(step, answers[party]?.[k] ?? new Uint8Array());
      }
    }
  }

  /** Both parties' roots of a state that both have stated. */
  rootsOf(step: number): Both<Uint8Array> {
    return forBoth((party) => {
      const root = this.of[party].rootOf(step);
      if (root === undefined) throw new Error(`party ${party} has not stated state ${step}`);
      return root;
    });
  }

  differAt(step: number): boolean {
    return !equalBytes(...this.rootsOf(step));
  }
}

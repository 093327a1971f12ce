/** The judge: who has lied, by evidence and a job's terms alone (PROTOCOL 8.2). */
import { toHex } from "../bytes.ts";
import { refuse } from "../errors.ts";
import type { Terms } from "../job/terms.ts";
import { sameKey, type PublicKey } from "../signatures.ts";
import { boundsOf } from "./bounds.ts";
import { readEvidence, type Evidence } from "./evidence.ts";
import { Found } from "./found.ts";
import { playGame, type GameEnd } from "./game.ts";
import { Convicted, WithoutVerdict, type Case, type Conviction } from "./play.ts";
import { Replay } from "./replay.ts";
import { forBoth, PARTIES, type Both } from "./rounds.ts";

export type Name = "A" | "B";

export interface ConvictedParty {
  readonly party: Name;
  readonly run_root: string;
  readonly signer: string;
  readonly trusted: boolean | null;
  readonly case: Case | "";
  readonly clause: string;
}

/** What `tallystick judge --json` says, by the same names (docs/INTERFACE.md). */
export interface Judgement {
  readonly agreement: boolean;
  readonly undecided: boolean;
  readonly convicted: readonly ConvictedParty[];
  readonly accepted: string | null;
  readonly accepted_party: Name | null;
  readonly phase: 0 | 1 | 2 | 3;
  readonly case: Case | "";
  readonly clause: string | null;
  readonly interval: readonly [number, number] | null;
  readonly step: number | null;
  readonly node: number | null;
  readonly operator: string | null;
  readonly side: "input" | "output" | null;
  readonly operand: number | null;
  readonly element: number | null;
  readonly quantity: string | null;
  readonly claimed: readonly [string, string];
  readonly value: string;
  readonly choices: { readonly left: number; readonly taken: number };
  readonly forfeit: boolean;
  readonly rests_on: "parties" | "referee" | null;
  readonly referee: string | null;
  readonly run_roots: Both<string>;
  readonly signers: Both<string>;
  readonly trusted: Both<boolean | null>;
  readonly rounds: number;
  readonly received_bytes: number;
  readonly terms: number;
}

export interface JudgeOptions {
  /** Keys whose word about a silence is believed (2.10). */
  readonly referees: readonly PublicKey[];
  /** Signers of runs that the reader trusts; without a list none is known (COMMITMENTS 9.4). */
  readonly trust?: readonly PublicKey[];
}

const NAMES: Both<Name> = ["A", "B"];

/** How the game in the evidence ended. */
interface Ended {
  readonly end: GameEnd | "convictions";
  readonly convictions: readonly Conviction[];
}

function played(evidence: Evidence, replay: Replay, terms: Terms, found: Found): Ended {
  const { arity, commitments } = evidence;
  try {
    const end = replay.play(playGame({ terms, arity, commitments, found }), found);
    replay.end();
    return { end, convictions: [] };
  } catch (error) {
    if (error instanceof WithoutVerdict) throw refuse(`no verdict: ${error.message}`);
    if (!(error instanceof Convicted)) throw error;
    replay.end();
    return { end: "convictions", convictions: error.convictions };
  }
}

/** Judges evidence; what is refused throws a RefusedError, and convicts no party (8.3). */
export function judge(bytes: Uint8Array, terms: Terms, options: JudgeOptions): Judgement {
  const evidence = readEvidence(bytes, terms, boundsOf);
  const found = new Found();
  const replay = new Replay(evidence, terms, options.referees);
  const { end, convictions } = played(evidence, replay, terms, found);

  const { commitments } = evidence;
  const roots = forBoth((party) => toHex(commitments[party].runRoot));
  const signers = forBoth((party) => commitments[party].signer.id);
  const trusted = forBoth((party) => {
    const { signer } = commitments[party];
    return options.trust?.some((key) => sameKey(key, signer)) ?? null;
  });
  const cleared = PARTIES.filter((own) => convictions.every(({ party }) => party !== own));
  const accepted = convictions.length > 0 ? cleared[0] : undefined;
  const [first] = convictions;
  const { side } = found;
  return {
    agreement: end === "agreement",
    undecided: end === "undecided",
    convicted: convictions.map(({ party, clause, case: ofCase }) => ({
      party: NAMES[party],
      run_root: roots[party],
      signer: signers[party],
      trusted: trusted[party],
      case: ofCase ?? "",
      clause,
    })),
    accepted: accepted === undefined ? null : roots[accepted],
    accepted_party: accepted === undefined ? null : NAMES[accepted],
    phase: found.phase,
    case: first?.case ?? "",
    clause: first?.clause ?? null,
    interval: found.interval,
    step: found.step,
    node: found.node,
    operator: found.operator,
    side: side === null ? null : side === 0 ? "input" : "output",
    operand: found.operand,
    element: found.element,
    quantity: found.quantity,
    claimed: found.claimed,
    value: found.value,
    choices: found.choices,
    forfeit: replay.referee !== null,
    rests_on: first === undefined ? null : replay.referee === null ? "parties" : "referee",
    referee: replay.referee?.id ?? null,
    run_roots: roots,
    signers,
    trusted,
    rounds: replay.rounds,
    received_bytes: replay.receivedBytes,
    terms: found.terms,
  };
}

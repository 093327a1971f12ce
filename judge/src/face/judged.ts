/**
 * What was found, in facts: the object that `tallystick judge --json` prints (docs/INTERFACE.md).
 * The page, the command and the sentences of `words.ts` read nothing else about a verdict.
 */

export type Side = "A" | "B";

export interface ConvictedParty {
  readonly party: Side;
  readonly run_root: string;
  /** A key id (COMMITMENTS 9.1). */
  readonly signer: string;
  /** Always null here: this judge is told no list of signers. */
  readonly trusted: null;
  /** A case of PROTOCOL 1.6; empty where the clause has none. */
  readonly case: string;
  readonly clause: string;
  readonly sentence: string;
}

export interface Found {
  readonly agreement: boolean;
  readonly undecided: boolean;
  readonly convicted: readonly ConvictedParty[];
  /** The accepted run's root (PROTOCOL 1.5). */
  readonly accepted: string | null;
  readonly accepted_party: Side | null;
  readonly phase: number;
  readonly case: string;
  readonly clause: string | null;
  readonly interval: readonly [number, number] | null;
  readonly step: number | null;
  readonly node: number | null;
  readonly operator: string | null;
  readonly side: "input" | "output" | null;
  readonly operand: number | null;
  readonly element: number | null;
  readonly quantity: string | null;
  /** What A and B state there, and what the job's contract gives. Empty where nothing was computed. */
  readonly claimed: readonly [string, string];
  readonly value: string;
  readonly choices: { readonly left: number; readonly taken: number };
  readonly forfeit: boolean;
  readonly rests_on: "parties" | "referee" | null;
  readonly referee: string | null;
  readonly run_roots: readonly [string, string];
  readonly signers: readonly [string, string];
  readonly trusted: readonly [null, null];
  readonly rounds: number;
  readonly received_bytes: number;
  readonly terms: number;
}

/** A verdict, and what it was reached over. */
export interface Judged {
  readonly found: Found;
  /** SHA-256 of the whole evidence file, as `sha256sum` gives it. */
  readonly evidenceDigest: string;
  readonly jobDigest: string;
  readonly contract: string;
  readonly steps: number;
}

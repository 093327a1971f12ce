/** The vectors of sessions (vectors/protocol/README.md), and what signs messages like theirs. */

import { ed25519 } from "@noble/curves/ed25519.js";

import { readTerms } from "../../src/job/read.ts";
import type { Terms } from "../../src/job/terms.ts";
import { PublicKey, preAuthentication } from "../../src/signatures.ts";
import { writeSigned } from "../../src/protocol/signed.ts";
import type { SessionOutcome } from "../../src/session/log.ts";
import { vectorBytes, vectors } from "../commit/golden.ts";
import { TABLE } from "../program/cases.ts";

type Place = [offset: number, bytes: number];

export interface SessionVectors {
  job: { "job.json": Place; "program.txt": Place };
  messages: { name: string; seed: string; type: string; data: Place; signed: Place }[];
  logs: { name: string; entries: Place[]; outcome: SessionOutcome }[];
}

export const FILE = vectors<SessionVectors>("protocol/sessions.json");
const DATA = vectorBytes("protocol/sessions.bin");

export function bytesAt([offset, bytes]: Place): Uint8Array {
  return Uint8Array.from(DATA.subarray(offset, offset + bytes));
}

/** The signed entries of a log. */
export function entriesOf(name: string): Uint8Array[] {
  return (FILE.logs.find((log) => log.name === name)?.entries ?? []).map(bytesAt);
}

export const TERMS: Terms = readTerms(
  { manifest: bytesAt(FILE.job["job.json"]), programs: [bytesAt(FILE.job["program.txt"])] },
  TABLE,
);

/** A private key of RFC 8032. */
export class Signer {
  readonly #seed: Uint8Array;
  readonly key: PublicKey;

  constructor(seed: Uint8Array) {
    this.#seed = seed;
    this.key = new PublicKey(ed25519.getPublicKey(seed));
  }

  signature(type: string, data: Uint8Array): Uint8Array {
    return ed25519.sign(preAuthentication(type, data), this.#seed);
  }

  /** The signed form of PROTOCOL 13.1. */
  signed(type: string, data: Uint8Array): Uint8Array {
    return writeSigned({ data, signature: this.signature(type, data) });
  }
}

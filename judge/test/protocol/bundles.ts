/** Bundles of evidence and their verdicts (vectors/protocol/README.md). */
import { readdirSync } from "node:fs";

import { fromBase64 } from "../../src/bytes.ts";
import { RefusedError } from "../../src/errors.ts";
import { readTerms } from "../../src/job/read.ts";
import type { Terms } from "../../src/job/terms.ts";
import { readTable } from "../../src/operators/index.ts";
import { judge, type Judgement } from "../../src/protocol/judge.ts";
import { PublicKey } from "../../src/signatures.ts";
import { vectorBytes, vectors } from "../commit/golden.ts";

type Place = readonly [number, number];

export interface BundleCase {
  readonly name: string;
  readonly job: number;
  readonly evidence: Place;
  readonly referees: readonly string[];
  readonly code: 0 | 1 | 2;
  readonly found: Judgement | { readonly error: string };
}

interface BundleFile {
  readonly format: string;
  readonly data: string;
  readonly jobs: readonly Readonly<Record<string, Place>>[];
  readonly cases: readonly BundleCase[];
}

const FOLDER = "protocol";
const MANIFEST = "job.json";
/** The bytes of SubjectPublicKeyInfo before an Ed25519 key (RFC 8410). */
const KEY_HEAD_BYTES = 12;

const TABLE = readTable(vectors("operators.json"));

/** The names of all bundles of evidence. */
export function bundleNames(): string[] {
  const files = readdirSync(new URL(`../../../vectors/${FOLDER}/`, import.meta.url));
  const names = files.filter((file) => file.endsWith(".json") && file !== "sessions.json");
  return names.map((file) => file.slice(0, -".json".length)).sort();
}

function keyOfPem(pem: string): PublicKey {
  const base64 = pem.split("\n").filter((line) => line !== "" && !line.startsWith("-----"));
  return new PublicKey(fromBase64(base64.join("")).subarray(KEY_HEAD_BYTES));
}

/** What the judge makes of a case: its exit code, and the object or the refusal's sentence. */
export interface Outcome {
  readonly code: 0 | 1 | 2;
  readonly found?: Judgement;
  readonly refusal?: string;
}

export class Bundle {
  readonly #file: BundleFile;
  readonly #data: Uint8Array;
  readonly #terms = new Map<number, Terms>();

  constructor(name: string) {
    this.#file = vectors<BundleFile>(`${FOLDER}/${name}.json`);
    this.#data = vectorBytes(`${FOLDER}/${this.#file.data}`);
  }

  get cases(): readonly BundleCase[] {
    return this.#file.cases;
  }

  #bytes([offset, length]: Place): Uint8Array {
    return this.#data.subarray(offset, offset + length);
  }

  /** The files of a case's job, by their names. */
  files({ job }: Pick<BundleCase, "job">): Map<string, Uint8Array> {
    const places = Object.entries(this.#file.jobs[job] ?? {});
    return new Map(places.map(([name, place]) => [name, this.#bytes(place)]));
  }

  #termsOf(job: number): Terms {
    const known = this.#terms.get(job);
    if (known !== undefined) return known;
    const programs = this.files({ job });
    const manifest = programs.get(MANIFEST) ?? new Uint8Array();
    programs.delete(MANIFEST);
    const terms = readTerms({ manifest, programs }, TABLE);
    this.#terms.set(job, terms);
    return terms;
  }

  /** The evidence of a case, copied so that a test may change it. */
  evidence({ evidence }: BundleCase): Uint8Array {
    return this.#bytes(evidence).slice();
  }

  /** Forgets the terms that were read. */
  forget(): void {
    this.#terms.clear();
  }

  /** The terms of a case's job. */
  terms({ job }: BundleCase): Terms {
    return this.#termsOf(job);
  }

  judge(one: BundleCase, evidence = this.evidence(one)): Outcome {
    const referees = one.referees.map(keyOfPem);
    try {
      const found = judge(evidence, this.#termsOf(one.job), { referees });
      const code = found.agreement ? 0 : found.convicted.length > 0 ? 1 : 2;
      return { code, found };
    } catch (error) {
      if (error instanceof RefusedError) return { code: 2, refusal: error.message };
      throw error;
    }
  }
}

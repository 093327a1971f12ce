/** Cases of vectors/protocol, as the tests of the face take them. */
import type { Found, Judged } from "../../src/face/judged.ts";
import { bytesOfVectors, jsonOfVectors } from "../vectors.ts";

type Place = readonly [number, number];

interface Bundle {
  readonly data: string;
  readonly jobs: readonly Readonly<Record<string, Place>>[];
  readonly cases: readonly {
    readonly name: string;
    readonly job: number;
    readonly evidence: Place;
    readonly referees: readonly string[];
    readonly code: number;
    readonly found: Found | { readonly error: string };
  }[];
}

export interface Case {
  readonly name: string;
  readonly evidence: Uint8Array;
  readonly job: ReadonlyMap<string, Uint8Array>;
  readonly referees: readonly string[];
  readonly code: number;
  /** Undefined where the evidence is refused. */
  readonly found: Found | undefined;
}

export function casesOf(name: string): Case[] {
  const bundle = jsonOfVectors(`protocol/${name}.json`) as Bundle;
  const data = new Uint8Array(bytesOfVectors(`protocol/${bundle.data}`));
  const at = ([offset, length]: Place): Uint8Array => data.slice(offset, offset + length);
  return bundle.cases.map((one) => ({
    name: one.name,
    evidence: at(one.evidence),
    job: new Map(
      Object.entries(bundle.jobs[one.job] ?? {}).map(([file, place]) => [file, at(place)]),
    ),
    referees: one.referees,
    code: one.code,
    found: "error" in one.found ? undefined : one.found,
  }));
}

export function caseOf(bundle: string, name: string): Case {
  const found = casesOf(bundle).find((one) => one.name === name);
  if (found === undefined) throw new Error(`no case ${name}`);
  return found;
}

/** A verdict over a case, whose found object is that of the vector. */
export function judgedOf(found: Found): Judged {
  return {
    found,
    evidenceDigest: "e".repeat(64),
    jobDigest: "d".repeat(64),
    contract: "c/1",
    steps: 20,
    work: "training",
    disputed: null,
  };
}

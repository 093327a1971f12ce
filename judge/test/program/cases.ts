/** The cases of vectors/program/index.json (vectors/program/README.md). */
import { fromBase64, toUtf8 } from "../../src/bytes.ts";
import { RefusedError } from "../../src/errors.ts";
import { readTable, type OperatorTable } from "../../src/operators/index.ts";
import { jsonOfVectors } from "../vectors.ts";
import { vectors } from "../commit/golden.ts";

export interface Case {
  readonly name: string;
  readonly clause: string;
  readonly text?: string;
  readonly base64?: string;
  readonly parts?: readonly (readonly [string, number])[];
  readonly program?: string;
  readonly programs?: readonly string[];
  readonly digest?: string;
  readonly refused?: true;
  readonly micro_batches?: number;
  readonly nodes?: number;
  readonly expansion?: string;
}

export type List = "programs" | "jobs" | "jobs_2" | "jobs_3" | "expansions";

const FILE = vectors<Record<List, readonly Case[]>>("program/index.json");

export const casesOf = (list: List): readonly Case[] => FILE[list];

export const TABLE: OperatorTable = readTable(jsonOfVectors("operators.json"));

/** The bytes of a case's file. */
export function fileOf({ text, base64, parts }: Case): Uint8Array {
  if (base64 !== undefined) return fromBase64(base64);
  if (parts !== undefined) return toUtf8(parts.map(([one, count]) => one.repeat(count)).join(""));
  if (text === undefined) throw new Error("a case without a file");
  return toUtf8(text);
}

/** What `made` gives, or "refused": every other error goes on. */
export function orRefused<T>(made: () => T): T | "refused" {
  try {
    return made();
  } catch (error) {
    if (error instanceof RefusedError) return "refused";
    throw error;
  }
}

/** A program's bytes, read, checked and with their digest (PROGRAM 3, 4). */
import type { Contract, OperatorTable } from "../operators/index.ts";
import { sha256, tag } from "../sha256.ts";
import { contractOf } from "./contract.ts";
import { checkFormed } from "./formed.ts";
import { readText } from "./reader.ts";
import type { ProgramText } from "./text.ts";

export interface Program {
  readonly text: ProgramText;
  readonly contract: Contract;
  /** 4.1. */
  readonly digest: Uint8Array;
}

/** The program of a text's bytes. Bytes that are none are refused. */
export function readProgram(bytes: Uint8Array, table: OperatorTable): Program {
  const text = readText(bytes);
  const contract = contractOf(text.contract, table);
  checkFormed(text, table);
  return { text, contract, digest: programDigest(text.version, bytes) };
}

/** The program digest (4.1). */
function programDigest(version: 1 | 2, bytes: Uint8Array): Uint8Array {
  return sha256(tag(`program/${version}`), bytes);
}

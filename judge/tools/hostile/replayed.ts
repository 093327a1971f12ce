/** Games of vectors/protocol, signed anew by the forger, with the longest answers at their ends. */
import { concatBytes, toHex } from "../../src/bytes.ts";
import { LIMITS } from "../../src/limits.ts";
import { boundsOf } from "../../src/protocol/bounds.ts";
import { readEvidence, type Evidence } from "../../src/protocol/evidence.ts";
import { openSignedAnswer, writeQuery } from "../../src/protocol/messages.ts";
import type { Party, Query } from "../../src/protocol/queries.ts";
import { Writer } from "../../src/writer.ts";
import { Bundle } from "../../test/protocol/bundles.ts";
import { longestBody, type Answering } from "./forger.ts";

/** The answers of a case, by party and query. */
export interface Stored {
  readonly manifest: Uint8Array;
  readonly program: Uint8Array;
  readonly bytes: Uint8Array;
  readonly evidence: Evidence;
  readonly answer: Answering;
}

/** A case of a bundle whose job has one program. */
export function stored(bundleName: string, caseName: string): Stored {
  const bundle = new Bundle(bundleName);
  const one = bundle.cases.find(({ name }) => name === caseName);
  if (one === undefined) throw new Error(`${bundleName} has no case ${caseName}`);
  const files = bundle.files(one);
  const [manifest, program] = [files.get("job.json"), files.get("program.txt")];
  if (manifest === undefined || program === undefined) throw new Error("a job of several programs");
  const bytes = bundle.evidence(one);
  const evidence = readEvidence(bytes, bundle.terms(one), boundsOf);
  const bodies = new Map<string, Uint8Array>();
  for (const { party, bytes } of evidence.messages) {
    const { body, query } = openSignedAnswer(bytes, evidence.commitments[party]);
    bodies.set(`${party} ${toHex(query)}`, body);
  }
  const answer = (party: Party, query: Query): Uint8Array | undefined =>
    bodies.get(`${party} ${toHex(writeQuery(query))}`);
  return { manifest, program, bytes, evidence, answer };
}

/** A body with a list of as many hashes as there is room for. */
function longList(
  query: Query,
  before: Uint8Array,
  after: Uint8Array = new Uint8Array(),
): Uint8Array {
  const count = Math.floor((longestBody(query) - before.length - 8 - after.length) / 32);
  const hashes = new Uint8Array(32 * count).map((_, k) => k * 31);
  return concatBytes(before, new Writer().u64(count).bytes(), hashes, after);
}

/** The longest body that a query's layout has room for (2.1); it is no true answer. */
export function longestAnswer(query: Query): Uint8Array {
  switch (query.kind) {
    case "checkpoints":
      return longList(query, new Uint8Array(32 * query.indices.length));
    case "node": {
      const head = new Writer().text("aten.mm").blob(new Uint8Array(LIMITS.attributeBytes));
      return longList(query, head.bytes(), new Writer().u64(0).u64(0).bytes());
    }
    case "log":
      return longList(query, new Writer().hash(new Uint8Array(32)).u64(0).bytes());
    case "opening":
    case "leaf":
    case "log block":
      return new Writer().blob(new Uint8Array(longestBody(query) - 8)).bytes();
    default:
      return new Uint8Array(longestBody(query)).map((_, k) => k * 31);
  }
}

/** Answers as they are stored, until the first query of a kind: that has the longest ones. */
export const until =
  (kind: Query["kind"], { answer }: Stored): Answering =>
  (party, query) =>
    query.kind === kind ? longestAnswer(query) : answer(party, query);

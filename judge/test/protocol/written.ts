/** Evidence and forfeits as tests write them (PROTOCOL 2.10, 8.1). */
import { toHex } from "../../src/bytes.ts";
import { writeJson, type Json } from "../../src/json.ts";
import { FORFEIT_TYPE } from "../../src/protocol/forfeit.ts";
import type { Party } from "../../src/protocol/queries.ts";
import { Reader } from "../../src/reader.ts";
import { sha256 } from "../../src/sha256.ts";
import { writeEnvelope } from "../../src/signatures.ts";
import { Writer } from "../../src/writer.ts";
import type { Signer } from "../session/golden.ts";

const MOST = 1 << 24;

/** Evidence taken apart, its parts as they are. */
export interface Parts {
  readonly job: Uint8Array;
  readonly arity: number;
  readonly commitments: readonly Uint8Array[];
  readonly messages: readonly { readonly party: Party; readonly bytes: Uint8Array }[];
  readonly forfeits: readonly Uint8Array[];
}

export function takenApart(evidence: Uint8Array): Parts {
  const reader = new Reader(evidence.subarray(0, -32));
  reader.tag("evidence/1");
  const job = reader.hash();
  const arity = reader.count(256, "the arity");
  const blob = (): Uint8Array => reader.blob(MOST, "a part");
  const commitments = [blob(), blob()];
  const messages = reader.list(MOST, 9, "messages", () => {
    const party: Party = reader.u8() === 0 ? 0 : 1;
    return { party, bytes: blob() };
  });
  return { job, arity, commitments, messages, forfeits: reader.list(2, 8, "forfeits", blob) };
}

export function putTogether(parts: Parts): Uint8Array {
  const out = Writer.tagged("evidence/1").hash(parts.job).u64(parts.arity);
  for (const commitment of parts.commitments) out.blob(commitment);
  out.list(parts.messages, ({ party, bytes }) => out.u8(party).blob(bytes));
  out.list(parts.forfeits, (forfeit) => out.blob(forfeit));
  const content = out.bytes();
  return new Writer().raw(content).raw(sha256(content)).bytes();
}

/** The members of a forfeit that a referee signs, as JSON has them. */
export function forfeitMembers(
  job: Uint8Array,
  runRoots: readonly Uint8Array[],
  party: number,
  query: Uint8Array,
  referee: Uint8Array,
): Map<string, Json> {
  return new Map<string, Json>([
    ["kind", "tallystick/forfeit/1"],
    ["job_digest", toHex(job)],
    ["run_roots", runRoots.map(toHex)],
    ["party", party],
    ["query", toHex(query)],
    ["referee", toHex(referee)],
  ]);
}

export function signedForfeit(
  members: Map<string, Json>,
  by: Signer,
  type = FORFEIT_TYPE,
): Uint8Array {
  const payload = writeJson(members);
  const signature = by.signature(type, payload);
  return writeEnvelope({
    payloadType: type,
    payload,
    signatures: [{ keyId: by.key.id, signature }],
  });
}

/** Commitments and forfeits of long and dear JSON (COMMITMENTS 1.8, 9.3; PROTOCOL 2.10, 8.1). */
import { toBase64, toUtf8 } from "../../src/bytes.ts";
import { LIMITS } from "../../src/limits.ts";
import { FORFEIT_TYPE } from "../../src/protocol/forfeit.ts";
import {
  forfeitMembers,
  putTogether,
  signedForfeit,
  takenApart,
} from "../../test/protocol/written.ts";
import { SIGNERS, type Hostile } from "./forger.ts";
import { stored } from "./replayed.ts";

/** As often as there is room for. */
const filled = (text: string, length: number): string =>
  text.repeat(Math.floor(length / text.length));

/** JSON values of about so many bytes. */
const DEAR: Readonly<Record<string, (length: number) => string>> = {
  "a number of very many digits": (length) => filled("9", length),
  "very many values": (length) => `[${filled("0,", length - 8)}0]`,
  "deep arrays": (length) => {
    const depth = LIMITS.jsonDepth - 1;
    return `[${filled(`${"[".repeat(depth)}${"]".repeat(depth)},`, length - 8)}0]`;
  },
  "a string of escapes": (length) => `"${filled("\\u0000", length - 8)}"`,
  "a string of long characters": (length) => `"${filled("\u{1f9ee}", length / 4 - 8)}"`,
  "very many members": (length) => {
    const names = Array.from({ length: length / 11 }, (_, k) => String(k).padStart(6, "0"));
    return `{${names.map((name) => `"${name}":0`).join(",")}}`;
  },
  "very many signatures": (length) => {
    const one = `{"keyid":"${"0".repeat(64)}","sig":"${"A".repeat(88)}"}`;
    return `[${filled(`${one},`, length - 200)}${one}]`;
  },
};

/** Bytes of an envelope beside one of its members. */
const ENVELOPE = 200;

function envelope(member: "payload" | "payloadType" | "signatures", text: string): Uint8Array {
  const of = (name: string): string =>
    name === member ? text : name === "signatures" ? "[]" : '""';
  const members = ["payload", "payloadType", "signatures"].map((name) => `"${name}":${of(name)}`);
  return toUtf8(`{${members.join(",")}}`);
}

/** An envelope whose payload is such JSON. */
const inPayload = (text: string): Uint8Array => envelope("payload", `"${toBase64(toUtf8(text))}"`);

export function dearTexts(): Hostile[] {
  const { bytes, evidence, manifest, program } = stored("clauses", "agreement");
  const parts = takenApart(bytes);
  const made: Hostile[] = [];
  const add = (
    name: string,
    commitments: readonly Uint8Array[],
    forfeits: readonly Uint8Array[],
  ) => {
    const messages = forfeits.length > 0 ? [] : parts.messages;
    const all = putTogether({ ...parts, messages, commitments, forfeits });
    made.push({ name, evidence: all, manifest, program });
  };
  for (const [name, text] of Object.entries(DEAR)) {
    const long = (limit: number): string => text(limit - ENVELOPE);
    const ofCommitment = envelope("signatures", long(LIMITS.commitmentBytes));
    add(`commitments: ${name}`, [ofCommitment, ofCommitment], []);
    const payload = inPayload(text((LIMITS.forfeitBytes * 3) / 4 - ENVELOPE));
    add(`forfeits: ${name}`, parts.commitments, [payload, payload]);
  }
  const query = new Uint8Array(90_000).map((_, k) => k);
  const [a, b] = evidence.commitments;
  const forfeits = [0, 1].map((party) =>
    signedForfeit(
      forfeitMembers(parts.job, [a.runRoot, b.runRoot], party, query, SIGNERS[0].key.raw),
      SIGNERS[0],
      FORFEIT_TYPE,
    ),
  );
  add("forfeits of a very long query", parts.commitments, forfeits);
  return made;
}

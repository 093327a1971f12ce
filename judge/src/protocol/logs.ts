/** The parties' logs of a step (PROTOCOL 6.10): opened, and their blocks. */
import { equalBytes } from "../bytes.ts";
import { RefusedError } from "../errors.ts";
import { LIMITS } from "../limits.ts";
import {
  blockCount,
  blockElements,
  logDigest,
  readBoundedBlock,
  readPublishedBlock,
  sectionDigest,
  type LogSection,
} from "../logs.ts";
import { leafHash, rootByInclusion } from "../merkle.ts";
import type { Entry } from "../operators/index.ts";
import type { Reader } from "../reader.ts";
import { chainDigest, extendLogChain, LOG_CHAIN } from "../state.ts";
import { readInclusion } from "./bodies.ts";
import type { StepContext } from "./node.ts";
import type { Play } from "./play.ts";
import type { Party } from "./queries.ts";
import { askBoth, convictWhere, forBoth, type Both } from "./rounds.ts";
import { provesSlotOf } from "./slots.ts";

/** A party's log of a step, proved under its states. */
export interface StepLog {
  /** The log chain before the step, and after it. */
  readonly before: Uint8Array;
  readonly after: Uint8Array;
  readonly sections: readonly Uint8Array[];
}

interface LogAnswer {
  readonly chain: Uint8Array;
  readonly proofBefore: readonly Uint8Array[];
  readonly sections: readonly Uint8Array[];
  readonly proofAfter: readonly Uint8Array[];
}

/** The body of kind 13. */
function readLog(reader: Reader): LogAnswer {
  return {
    chain: reader.hash(),
    proofBefore: readInclusion(reader),
    sections: reader.hashes(LIMITS.logSections, "sections of a log"),
    proofAfter: readInclusion(reader),
  };
}

/** The log that an answer proves, if it does. */
function provedLog(at: StepContext, party: Party, answer: LogAnswer): StepLog | undefined {
  const { terms, step, program } = at;
  const { chain, sections } = answer;
  if (sections.length !== program.sections.length) return undefined;
  const proves = (value: Uint8Array, proof: readonly Uint8Array[], root: Uint8Array): boolean =>
    provesSlotOf(terms, LOG_CHAIN, { digest: chainDigest(value), proof }, root);
  const after = extendLogChain(chain, step, logDigest(step, sections));
  const isProved =
    proves(chain, answer.proofBefore, at.before[party]) &&
    proves(after, answer.proofAfter, at.after[party]);
  return isProved ? { before: chain, after, sections } : undefined;
}

/** Both parties open their logs of the step (kind 13). */
export function* openLogs(at: StepContext): Play<Both<StepLog>> {
  const answers = yield* askBoth({ kind: "log", step: at.step }, readLog);
  const [a, b] = forBoth((party) => provedLog(at, party, answers[party]));
  convictWhere([a === undefined, b === undefined], "6.10", null);
  if (a === undefined || b === undefined) throw new Error("a log that convicted no one");
  return [a, b];
}

/** The entries of a block by their row-major positions in the output. */
export type BlockEntries = ReadonlyMap<number, Entry>;

/**
 * Reads a block (COMMITMENTS 10.2, 10.3). A bounded block may have entries of elements that do not
 * exist: they are forged (NUMERICS 14.7), and the block is one nevertheless.
 */
function entriesOf(section: LogSection, block: number, bytes: Uint8Array): BlockEntries {
  const each = blockElements(section.form);
  if (section.form === "bounded") {
    const whole = { ...section, elements: each * blockCount(section) };
    const entries = readBoundedBlock(whole, block, bytes);
    return new Map(
      entries.map(({ position, direction }) => [position, direction === 0 ? 0 : 1] as const),
    );
  }
  const entries = readPublishedBlock(section, block, bytes);
  return new Map(
    Array.from(
      entries,
      (entry, k) => [each * block + k, entry === 0 ? 0 : entry === 1 ? 1 : 2] as const,
    ),
  );
}

/** Both parties open a block of a section (kind 15); its entries. */
export function* openBlocks(
  at: StepContext,
  logs: Both<StepLog>,
  section: number,
  block: number,
): Play<Both<BlockEntries>> {
  const own = at.program.sections[section];
  if (own === undefined) throw new Error(`no section ${section}`);
  const answers = yield* askBoth(
    { kind: "log block", step: at.step, section, block },
    (reader) => ({
      bytes: reader.blob(LIMITS.logBlockBytes, "a block of a log"),
      proof: readInclusion(reader),
    }),
  );
  const isStrange = forBoth((party) => {
    const { bytes, proof } = answers[party];
    const root = rootByInclusion(leafHash(bytes), block, blockCount(own), proof);
    const digest = logs[party].sections[section] ?? new Uint8Array();
    return root === undefined || !equalBytes(sectionDigest(own, root), digest);
  });
  const read = forBoth((party) => blockOrNone(own, block, answers[party].bytes));
  // A block that was not committed has no case; one that is none is a false output (1.6).
  convictWhere(isStrange, "6.10", null);
  const [a, b] = read;
  convictWhere([a === undefined, b === undefined], "6.10", "3");
  if (a === undefined || b === undefined) throw new Error("a block that convicted no one");
  return [a, b];
}

function blockOrNone(
  section: LogSection,
  block: number,
  bytes: Uint8Array,
): BlockEntries | undefined {
  try {
    return entriesOf(section, block, bytes);
  } catch (error) {
    if (error instanceof RefusedError) return undefined;
    throw error;
  }
}

/** The section of an output; −1 where it has none. */
export const sectionOf = (at: StepContext, node: number, output: number): number =>
  at.program.sections.findIndex((one) => one.node === node && one.output === output);

/** Each party's entry for an element of a section: the block that has it. */
export function* entriesFor(
  at: StepContext,
  section: number,
  element: number,
): Play<Both<Entry | undefined>> {
  const own = at.program.sections[section];
  if (own === undefined) throw new Error(`no section ${section}`);
  const logs = yield* openLogs(at);
  const block = Math.floor(element / blockElements(own.form));
  const [a, b] = yield* openBlocks(at, logs, section, block);
  return [a.get(element), b.get(element)];
}

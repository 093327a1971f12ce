/** Equal outputs under different logs: the first entry on which they differ (PROTOCOL 6.13). */
import { equalBytes, firstDiffering } from "../bytes.ts";
import { refuse } from "../errors.ts";
import { blockCount, sectionDigest, type LogSection } from "../logs.ts";
import { quantityOf, type Entry } from "../operators/index.ts";
import { sha256 } from "../sha256.ts";
import type { Below } from "./below.ts";
import { firstDifference, plainHashes } from "./descent.ts";
import { openedElement } from "./leaf.ts";
import { judgeEntry } from "./logged.ts";
import { openBlocks, type BlockEntries, type StepLog } from "./logs.ts";
import { agreedOperands, callOfNode, openingsOf, type StepContext } from "./node.ts";
import type { Play } from "./play.ts";
import { convict, convictBoth, convictWhere, forBoth, type Both } from "./rounds.ts";
import { agreedNeeds } from "./settle.ts";
import { bitsOfBytes } from "./values.ts";

/** A node of the step as party 0 opens it (kind 6). */
export interface OpenedNode {
  /** The record is in party 0's node tree (5.1). */
  readonly isInTree: boolean;
  /** Operator, attributes and numbers of digests are the program's (5.5.2). */
  readonly isOfProgram: boolean;
  readonly inputs: readonly Uint8Array[];
  readonly outputs: readonly Uint8Array[];
}

/** Asks party 0 for a node of the step. */
export type NodeOpener = (node: number) => Play<OpenedNode>;

/** The first section whose digests differ, and its number. */
function differingSection(at: StepContext, logs: Both<StepLog>): [LogSection, number] {
  const [a, b] = logs;
  const number = firstDiffering(a.sections, b.sections);
  const section = at.program.sections[number];
  if (section === undefined) throw new Error("different logs of equal sections");
  return [section, number];
}

/** The first block that differs, as a leaf is found in 6.1. */
function* differingBlock(
  at: StepContext,
  logs: Both<StepLog>,
  section: LogSection,
  number: number,
): Play<number> {
  const blocks = blockCount(section);
  const isDigest = (party: 0 | 1, root: Uint8Array): boolean =>
    equalBytes(sectionDigest(section, root), logs[party].sections[number] ?? new Uint8Array());
  if (blocks === 0) {
    convictWhere(
      forBoth((party) => !isDigest(party, sha256())),
      "6.13",
      null,
    );
    throw new Error("equal digests of an empty section");
  }
  const { leaf } = yield* firstDifference({
    leaves: blocks,
    query: (range) => ({ kind: "log hashes", step: at.step, section: number, range }),
    hashes: (reader, parts) => {
      if (reader.u64() !== BigInt(blocks)) throw refuse("another number of blocks");
      return plainHashes(reader, parts);
    },
    isRoot: isDigest,
    clause: "6.13",
  });
  return leaf;
}

/** The first element of two blocks for which the entries differ. */
function differingElement([a, b]: Both<BlockEntries>): number {
  const positions = [...new Set([...a.keys(), ...b.keys()])].sort((x, y) => x - y);
  const found = positions.find((position) => a.get(position) !== b.get(position));
  if (found === undefined) throw new Error("equal entries of different blocks");
  return found;
}

/**
 * Judges the first entry on which the logs differ. It returns where no party is convicted, and 6.14
 * follows.
 */
export function* judgeEntries(
  at: StepContext,
  logs: Both<StepLog>,
  openNode: NodeOpener,
): Play<void> {
  at.found.phase = 3;
  const [section, number] = differingSection(at, logs);
  const block = yield* differingBlock(at, logs, section, number);
  const blocks = yield* openBlocks(at, logs, number, block);
  const element = differingElement(blocks);
  const entries: Both<Entry | undefined> = [blocks[0].get(element), blocks[1].get(element)];

  const record = yield* openNode(section.node);
  if (!record.isInTree) throw convict(0, "6.13", null);
  if (!record.isOfProgram) throw convictBoth("6.13", "1");
  yield* judgeElement(at, section, record, element, entries);
}

/** The value of the element, and what each party's entry makes of it. */
function* judgeElement(
  at: StepContext,
  section: LogSection,
  record: OpenedNode,
  element: number,
  entries: Both<Entry | undefined>,
): Play<void> {
  const { found, program, step, terms } = at;
  const { node, output } = section;
  const programNode = program.node(node);
  found.output(step, node, programNode.operator.name, output);
  found.element = element;
  if (element >= section.elements) {
    // NUMERICS 14.7: an entry of an element that does not exist is forged.
    convictWhere([entries[0] !== undefined, entries[1] !== undefined], "6.13", "3");
  }
  const [type, digest] = [programNode.outputs[output], record.outputs[output]];
  if (type === undefined || digest === undefined) throw new Error(`no output ${output}`);
  const place = { step, node, side: 1, operand: output } as const;
  const value = bitsOfBytes(yield* openedElement(place, digest, type, element));

  const call = callOfNode(programNode);
  const quantity = quantityOf(terms.contract, { call, output, position: element });
  if (quantity?.kind !== "logged") return;
  const operands = agreedOperands(programNode, record.inputs);
  const openings = openingsOf({ ...at, node, operands });
  const below: Below = { output, element, openings, entries, found };
  const agreed = yield* agreedNeeds(below, quantity);
  yield* judgeEntry(below, quantity, value, agreed);
}

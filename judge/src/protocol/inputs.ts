/** An operand on which the parties' records differ (PROTOCOL 5.6). */
import { equalBytes } from "../bytes.ts";
import type { DataSet } from "../job/terms.ts";
import type { Source } from "../program/program.ts";
import { dataRootByPart } from "../records.ts";
import { LOG_CHAIN } from "../state.ts";
import { tensorDigest, widthOf, type TensorType } from "../tensors.ts";
import { Writer } from "../writer.ts";
import { readNode, readRecord, readRecordPart, readSlot } from "./bodies.ts";
import { disputedElement } from "./leaf.ts";
import type { DisputedStep } from "./phase2.ts";
import type { Case, Play } from "./play.ts";
import { formOf, isInTree, isOfForm } from "./records.ts";
import { askOne, convict, convictBoth, convictWhere, forBoth, type Both } from "./rounds.ts";
import { shown, shownDigest } from "./shown.ts";
import { provesSlotOf } from "./slots.ts";
import { bitsOfBytes } from "./values.ts";

/** An operand of a node, and the digests of it in both records. */
export interface Disagreement {
  readonly node: number;
  readonly operand: number;
  readonly source: Source;
  readonly digests: Both<Uint8Array>;
}

/** Convicts the parties that state another digest than the one found. */
function convictOthers(
  { found }: DisputedStep,
  digests: Both<Uint8Array>,
  due: Both<Uint8Array>,
  clause: string,
  ofCase: Case,
): void {
  const isOther = forBoth((party) => !equalBytes(digests[party], due[party]));
  const shownDue = due[isOther[0] ? 0 : 1];
  found.decided(null, [shownDigest(digests[0]), shownDigest(digests[1])], shownDigest(shownDue));
  convictWhere(isOther, clause, ofCase);
}

/** Decides on an operand if the records differ on it; it returns where they agree. */
export function* judgeInput(
  at: DisputedStep,
  disagreement: Disagreement,
  tree: Uint8Array,
): Play<void> {
  const { found, provedChains } = at;
  const { operand, source, digests } = disagreement;
  // Only COMMIT has the chains as operands: no program has slots of their names.
  const isLogChain = source.from === "input" && source.name === LOG_CHAIN;
  if (isLogChain && provedChains !== null) {
    // 6.14: each party's own chain, which it has proved under its own root.
    const isOther = forBoth((party) => !equalBytes(digests[party], provedChains[party]));
    if (!isOther[0] && !isOther[1]) return;
    [found.side, found.operand] = [0, operand];
    convictOthers(at, digests, provedChains, "5.6.1", "2a");
  }
  if (equalBytes(...digests)) return;
  [found.side, found.operand] = [0, operand];
  if (source.from === "node") return yield* judgeProducer(at, source, digests, tree);
  // The name of an input says what it is (PROGRAM 1.2), and the chains are slots too.
  const { name } = source;
  if (at.terms.slots.has(name)) return yield* judgeSlot(at, name, digests);
  if (at.program.input(name).kind === "batch") return yield* judgeBatch(at, disagreement, name);
  convictOthers(at, digests, sameOfBoth(derived(at, name)), "5.6.4", "2d");
}

const sameOfBoth = <T>(value: T): Both<T> => [value, value];

/** 5.6.1. */
function* judgeSlot(at: DisputedStep, name: string, digests: Both<Uint8Array>): Play<void> {
  const slot = yield* askOne(0, { kind: "slot", step: at.step, name }, readSlot);
  if (!provesSlotOf(at.terms, name, slot, at.before[0])) throw convict(0, "5.6.6", null);
  convictOthers(at, digests, sameOfBoth(slot.digest), "5.6.1", "2a");
}

/** 5.6.2. */
function* judgeProducer(
  at: DisputedStep,
  { node, output }: { readonly node: number; readonly output: number },
  digests: Both<Uint8Array>,
  tree: Uint8Array,
): Play<void> {
  const { program, step, terms } = at;
  const record = yield* askOne(0, { kind: "node", step, node }, readNode);
  if (!isInTree(program, step, node, record, tree)) throw convict(0, "5.6.6", null);
  if (!isOfForm(formOf(program, terms.slots, node), record)) throw convictBoth("5.6.2", "1");
  const digest = record.outputs[output] ?? new Uint8Array();
  convictOthers(at, digests, sameOfBoth(digest), "5.6.2", "2b");
}

/** The digest of a scalar or of the random key, which the job gives (5.6.4). */
function derived({ terms, step, program }: DisputedStep, name: string): Uint8Array {
  const { kind, type } = program.input(name);
  const own = terms.step(step);
  const bytes =
    kind === "rng"
      ? new Writer().u64(own.key[0]).u64(own.key[1]).bytes()
      : new Writer().f64(own.scalar(name)).bytes();
  return tensorDigest(type, bytes);
}

/** 5.6.3. */
function* judgeBatch(at: DisputedStep, disagreement: Disagreement, name: string): Play<void> {
  const { found, program, step, terms } = at;
  const { node, operand, digests } = disagreement;
  const { type } = program.input(name);
  const place = { step, node, side: 0, operand } as const;
  const { element, values } = yield* disputedElement(place, digests, type, "2c");
  found.element = element;
  const own = terms.step(step);
  if (own.data === null) throw new Error("a batch of no data");
  const { first, field } = program.batchInput(name);
  const perRecord = type.shape.slice(1).reduce((product, size) => product * size, 1);
  const record = own.record(first + Math.floor(element / perRecord));
  const byte = (element % perRecord) * widthOf(type.dtype);
  const due = yield* recordBytes(at, own.data, record, field, byte, type);
  const show = (bytes: Uint8Array): string => shown(type.dtype, bitsOfBytes(bytes));
  found.decided(null, [show(values[0]), show(values[1])], show(due));
  convictWhere(
    forBoth((party) => !equalBytes(values[party], due)),
    "5.6.3",
    "2c",
  );
}

/** An element of a record that party 0 proves: kind 12 in a job of format 1, else kind 16. */
function* recordBytes(
  { terms }: DisputedStep,
  { number, records, root, schema }: DataSet,
  record: number,
  field: string,
  byte: number,
  { dtype }: TensorType,
): Play<Uint8Array> {
  const { part, at } = schema.place(field, byte);
  const length = schema.parts()[part]?.length ?? 0;
  const proof = yield* terms.format === 1
    ? askOne(0, { kind: "record", index: record }, readRecord(length))
    : askOne(0, { kind: "record part", data: number, record, part }, readRecordPart(length));
  const found = dataRootByPart(schema, record, records, part, proof);
  if (found === undefined || !equalBytes(found, root)) throw convict(0, "5.6.6", null);
  return proof.bytes.subarray(at, at + widthOf(dtype));
}

/** The COMMIT node: chains and the state after a step (PROTOCOL 5.8, COMMITMENTS 5.5 to 5.7). */
import { equalBytes, firstDiffering } from "../bytes.ts";
import type { Bits } from "../numbers/bits.ts";
import {
  chainDigest,
  COMMIT,
  extendLossChain,
  LOG_CHAIN,
  LOSS_CHAIN,
  stateRootsBy,
} from "../state.ts";
import { readNode, type ProvedNode } from "./bodies.ts";
import { judgeEntries, type NodeOpener } from "./entries.ts";
import { openLogs, type StepLog } from "./logs.ts";
import { agreedOperands, type StepContext } from "./node.ts";
import { openElements, Openings } from "./opening.ts";
import type { DisputedStep } from "./phase2.ts";
import type { Play } from "./play.ts";
import { commitIndex, formOf, isInTree, isOfForm, type NodeForm } from "./records.ts";
import { askOne, convictWhere, forBoth, type Both } from "./rounds.ts";
import { shownDigest } from "./shown.ts";

/** Values are equal and logs are not, and 6.13 has convicted no party: its chains after the step. */
export interface CommitOutcome {
  readonly logChains: Both<Uint8Array>;
}

const CHAIN_BYTES = 32;

/**
 * The loss chain after the step, by the loss and the chain that party 0 opens. The records agree on
 * these operands.
 */
function* lossChainAfter(at: StepContext, form: NodeForm, record: ProvedNode): Play<Uint8Array> {
  const { program, step } = at;
  const operands = agreedOperands(form, record.inputs);
  const openings = new Openings(step, commitIndex(program), operands);
  const lossOperand = program.nextStates.length;
  const [bits = 0n] = yield* openElements(openings, lossOperand, [0n]);
  const positions = Array.from({ length: CHAIN_BYTES }, (_, k) => BigInt(k));
  const chain = yield* openElements(openings, lossOperand + 1, positions);
  return extendLossChain(bytesOf(chain), step, Number(bits));
}

const bytesOf = (values: readonly Bits[]): Uint8Array => Uint8Array.from(values, Number);

/** The outputs that records must have, by the slots that both agree on and the chains after the step. */
function outputsOf(
  { program }: StepContext,
  { inputs }: ProvedNode,
  loss: Uint8Array,
  logs: Both<Uint8Array>,
): Both<readonly Uint8Array[]> {
  const slots = new Map(
    program.nextStates.map(({ slot }, k) => [slot, inputs[k] ?? new Uint8Array()]),
  );
  const roots = stateRootsBy(LOG_CHAIN, logs, slots.set(LOSS_CHAIN, loss));
  return forBoth((party) => [loss, logs[party], roots[party] ?? new Uint8Array()]);
}

/** Asks party 0 for a node of the step (6.13). */
function nodeOpener({ program, step, terms }: StepContext, tree: Uint8Array): NodeOpener {
  return function* (node) {
    const record = yield* askOne(0, { kind: "node", step, node }, readNode);
    const { inputs, outputs } = record;
    return {
      isInTree: isInTree(program, step, node, record, tree),
      isOfProgram: isOfForm(formOf(program, terms.slots, node), record),
      inputs,
      outputs,
    };
  };
}

/** Judges the outputs of COMMIT, whose inputs are equal. */
export function* judgeCommit(
  at: DisputedStep,
  form: NodeForm,
  records: Both<ProvedNode>,
  tree: Uint8Array,
): Play<CommitOutcome> {
  const { found, program, step, terms } = at;
  const [a, b] = records;
  const first = firstDiffering(a.outputs, b.outputs);
  found.output(step, commitIndex(program), COMMIT, first);
  const loss = chainDigest(yield* lossChainAfter(at, form, a));
  found.terms += 1;
  const logs: Both<StepLog> | null = terms.logs === null ? null : yield* openLogs(at);
  const logChains = forBoth((party) => {
    if (logs !== null) return chainDigest(logs[party].after);
    // Without logs the chain stays what it is (COMMITMENTS 5.6).
    return records[party].inputs.at(-1) ?? new Uint8Array();
  });
  const due = outputsOf(at, a, loss, logChains);
  const isOther = forBoth((party) =>
    due[party].some((digest, k) => !equalBytes(digest, records[party].outputs[k] ?? digest)),
  );
  const liar = isOther[0] ? 0 : 1;
  const shownAt = (digests: readonly Uint8Array[]): string =>
    shownDigest(digests[first] ?? new Uint8Array());
  if (isOther[0] || isOther[1]) {
    found.decided(null, [shownAt(a.outputs), shownAt(b.outputs)], shownAt(due[liar]));
  }
  convictWhere(isOther, "5.8", "3");
  if (logs === null) throw new Error("different states of equal outputs");
  yield* judgeEntries(at, logs, nodeOpener(at, tree));
  return { logChains };
}

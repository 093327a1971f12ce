/** Phase 2: the first diverging node of a step (PROTOCOL 5). */
import { equalBytes, firstDiffering } from "../bytes.ts";
import { readNode, readNodes, type ProvedNode } from "./bodies.ts";
import { judgeCommit, type CommitOutcome } from "./commit.ts";
import { firstDifference, plainHashes, type Descended } from "./descent.ts";
import { judgeInput, type Disagreement } from "./inputs.ts";
import { agreedOperands, type StepContext } from "./node.ts";
import { judgeOutput } from "./output.ts";
import type { Play } from "./play.ts";
import {
  commitIndex,
  formOf,
  isInTree,
  isOfForm,
  presentOperands,
  recordLeafHash,
  type NodeForm,
} from "./records.ts";
import { askBoth, convict, convictEach, convictWhere, forBoth, type Both } from "./rounds.ts";

/** The disputed step, and of 6.14 the log chain that each party has proved before it. */
export interface DisputedStep extends StepContext {
  readonly provedChains: Both<Uint8Array> | null;
}

/** Undecided (6.12), or equal values under different logs (6.13). */
export type StepOutcome = CommitOutcome | "undecided";

/** The roots of both parties' node trees (5.1, 5.2). */
function* nodeTrees({ program, step }: StepContext): Play<Both<Uint8Array>> {
  const trees = yield* askBoth({ kind: "nodes", step }, readNodes);
  convictWhere(
    forBoth((party) => trees[party].count !== BigInt(program.nodeCount)),
    "5.2",
    "1",
  );
  return [trees[0].root, trees[1].root];
}

/** Both parties' COMMIT records, tied to their trees and states (5.3). */
function* commitRecords(at: StepContext, trees: Both<Uint8Array>): Play<Both<ProvedNode>> {
  const { program, step, terms } = at;
  const node = commitIndex(program);
  const form = formOf(program, terms.slots, node);
  const records = yield* askBoth({ kind: "node", step, node }, readNode);
  convictEach((party) => {
    const record = records[party];
    if (!isInTree(program, step, node, record, trees[party])) return convict(party, "5.3", null);
    if (!isOfForm(form, record)) return convict(party, "5.3", "1");
    const root = record.outputs.at(-1) ?? new Uint8Array();
    return equalBytes(root, at.after[party]) ? undefined : convict(party, "5.3", null);
  });
  return records;
}

/** Both parties' records of the first differing node (5.5). */
function* nodeRecords(
  at: StepContext,
  node: number,
  form: NodeForm,
  hashes: Descended["hashes"],
): Play<Both<ProvedNode>> {
  const { program, step } = at;
  const records = yield* askBoth({ kind: "node", step, node }, readNode);
  convictEach((party) => {
    const record = records[party];
    const leaf = recordLeafHash(program, step, node, record);
    if (!equalBytes(leaf, hashes[party] ?? new Uint8Array())) return convict(party, "5.5", null);
    return isOfForm(form, record) ? undefined : convict(party, "5.5", "1");
  });
  return records;
}

/** The node of 5.4, and the hash of its leaf that each party has given. */
const differingNode = ({ program, step }: StepContext, trees: Both<Uint8Array>): Play<Descended> =>
  firstDifference({
    leaves: program.nodeCount,
    query: (range) => ({ kind: "node hashes", step, range }),
    hashes: plainHashes,
    isRoot: (party, hash) => equalBytes(hash, trees[party]),
    clause: "5.4",
  });

/** Plays the step. It returns where no party is convicted. */
export function* playStep(at: DisputedStep): Play<StepOutcome> {
  const { found, program, step, terms } = at;
  found.phase = 2;
  found.step = step;
  const trees = yield* nodeTrees(at);
  const commits = yield* commitRecords(at, trees);
  const { leaf: node, hashes } = yield* differingNode(at, trees);
  const form = formOf(program, terms.slots, node);
  [found.node, found.operator] = [node, form.operator];
  const isCommit = node === commitIndex(program);
  const records = isCommit ? commits : yield* nodeRecords(at, node, form, hashes);

  for (const [k, { operand, source }] of presentOperands(form).entries()) {
    const digests = forBoth((party) => records[party].inputs[k] ?? new Uint8Array());
    const disagreement: Disagreement = { node, operand, source, digests };
    yield* judgeInput(at, disagreement, trees[0]);
  }
  const [a, b] = records;
  if (isCommit) return yield* judgeCommit(at, form, records, trees[0]);
  const output = firstDiffering(a.outputs, b.outputs);
  if (output < 0) throw new Error("equal records of different nodes");
  const operands = agreedOperands(program.node(node), a.inputs);
  const digests = forBoth((party) => records[party].outputs[output] ?? new Uint8Array());
  yield* judgeOutput({ ...at, node, operands }, output, digests);
  return "undecided";
}

/** The first differing output of a node, down to one execution (PROTOCOL 5.7, 6.1 to 6.12). */
import { quantityOf } from "../operators/index.ts";
import type { Below } from "./below.ts";
import { disputedElement } from "./leaf.ts";
import { entriesFor, sectionOf } from "./logs.ts";
import { callOfNode, openingsOf, type NodeContext } from "./node.ts";
import type { Play } from "./play.ts";
import type { Both } from "./rounds.ts";
import { settle } from "./settle.ts";
import { bitsOfBytes } from "./values.ts";

/**
 * Judges an output for which the parties' records have different digests. It returns where each
 * value is one that its party's own log gives: the game is undecided (PROTOCOL 6.12).
 */
export function* judgeOutput(
  at: NodeContext,
  output: number,
  digests: Both<Uint8Array>,
): Play<void> {
  const { terms, step, node, found } = at;
  const programNode = at.program.node(node);
  const type = programNode.outputs[output];
  if (type === undefined) throw new Error(`node ${node} has no output ${output}`);
  found.phase = 3;
  found.output(step, node, programNode.operator.name, output);

  const place = { step, node, side: 1, operand: output } as const;
  const { element, values } = yield* disputedElement(place, digests, type);
  found.element = element;
  const section = terms.logs === null ? -1 : sectionOf(at, node, output);
  const entries: Below["entries"] =
    section < 0 ? [undefined, undefined] : yield* entriesFor(at, section, element);

  const call = callOfNode(programNode);
  const quantity = quantityOf(terms.contract, { call, output, position: element });
  if (quantity === undefined) throw new Error(`no opening rule of node ${node}`);
  const below: Below = { output, element, openings: openingsOf(at), entries, found };
  const claims: Both<bigint> = [bitsOfBytes(values[0]), bitsOfBytes(values[1])];
  yield* settle(below, { quantity, path: [], claims });
}

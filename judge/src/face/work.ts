/** What a job is the work of: training, one answer of a model, or one encoding of a text. The game is
 * the same for all (ANSWERS 1.4, 1.6); only what the words call the work differs. */

import type { Terms } from "../job/terms.ts";

export type Work = "training" | "answer" | "encoding";

const PREFIX = "buffer.answer.";
/** By the slots that the one step fills, in their order (ANSWERS 2.5, 11.4). */
const WORKS: Readonly<Record<string, Work>> = {
  "logprobs salt tokens": "answer",
  "salt values": "encoding",
};

export function workOf({ steps, slots }: Pick<Terms, "steps" | "slots">): Work {
  if (steps !== 1) return "training";
  const own = [...slots.keys()].filter((name) => name.startsWith(PREFIX));
  const names = own.map((name) => name.slice(PREFIX.length)).sort();
  return WORKS[names.join(" ")] ?? "training";
}

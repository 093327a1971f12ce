/** Slots of a state, proved under its root (COMMITMENTS 5.4). */
import type { Terms } from "../job/terms.ts";
import { provesSlot } from "../state.ts";
import type { SlotProof } from "./bodies.ts";

/** Whether a slot's digest is proved under a root of a state of the job. */
export function provesSlotOf(
  { slots }: Terms,
  name: string,
  { digest, proof }: SlotProof,
  root: Uint8Array,
): boolean {
  const names = [...slots.keys()];
  return provesSlot(name, digest, names.indexOf(name), names.length, proof, root);
}

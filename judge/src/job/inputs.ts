/** Names of inputs, as a job knows them (COMMITMENTS 7.4): without the kind in front. */
import type { Input } from "../program/program.ts";
import type { ProgramText } from "../program/text.ts";
import type { TensorType } from "../tensors.ts";

export const SCALAR = "scalar.";

const PREFIX: Readonly<Record<Input["kind"], string>> = {
  batch: "batch.",
  scalar: SCALAR,
  rng: "",
  state: "",
};

/** The inputs of a kind: fields, scalars, or slots in the bytewise order of their names. */
export function inputsOf(text: ProgramText, kind: Input["kind"]): Map<string, TensorType> {
  const found = new Map<string, TensorType>();
  for (const [name, input] of text.inputs) {
    if (input.kind === kind) found.set(name.slice(PREFIX[kind].length), input.type);
  }
  return found;
}

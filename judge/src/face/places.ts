/** Where a game came to, in words. Steps count from 0, as in the specification. */

import type { Kind } from "./acts.ts";
import type { Found } from "./judged.ts";
import { inWords } from "./operations.ts";

const whole = (value: number): string => value.toLocaleString("en");
const steps = (count: number): string => `${whole(count)} ${count === 1 ? "step" : "steps"}`;

/** Where a party left the job, or what it was asked about, as the end of a sentence. */
export function since(kind: Kind, { step, interval }: Found): string {
  if (kind === "whole") return "";
  const [low, high] = (interval ?? []).map(whole);
  if (kind === "step") {
    if (step !== null) return `, in step ${whole(step)}`;
    return low === undefined ? "" : `, after step ${low} and before step ${high} ended`;
  }
  if (kind === "end" && step !== null) return `, after step ${whole(step)}`;
  if (step !== null) return `, when asked about step ${whole(step)}`;
  return low === undefined ? "" : `, when asked about steps ${low} to ${high}`;
}

/** What the disputed place is. */
function about({ operator, side }: Found): string {
  if (operator === null) return "";
  const operation = inWords(operator);
  if (side === "output") return ` It is about what comes out of ${operation}.`;
  if (side === "input") return ` It is about what goes into ${operation}.`;
  return ` The place is ${operation}.`;
}

/** How far the runs are equal, of a job of so many steps. */
export function until(found: Found, ofSteps: number): string {
  const { step, interval } = found;
  if (step === null) {
    if (interval === null) return "No single step of the training had to be looked at for this.";
    const [low, high] = interval.map(steps);
    return `The runs are equal after ${low} and differ after ${high}.`;
  }
  const at = whole(step);
  if (found.case === "0") {
    return (
      `Both runs have step ${at} and are equal after it. One of them ends there, and the other one ` +
      "goes on (steps count from 0)."
    );
  }
  if (step === 0) {
    return (
      `The runs part in the very first of ${steps(ofSteps)}, step 0 (steps count from 0).` +
      about(found)
    );
  }
  return (
    `Both runs are equal for the first ${steps(step)} of ${whole(ofSteps)}. In step ${at} they part ` +
    `(steps count from 0).${about(found)}`
  );
}

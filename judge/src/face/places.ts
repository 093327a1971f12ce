/** Where a dispute came to, in words. Steps count from 0, as in the specification. */

import type { Kind } from "./acts.ts";
import type { Found } from "./judged.ts";
import { inWords } from "./operations.ts";
import type { Work } from "./work.ts";

const whole = (value: number): string => value.toLocaleString("en");
const steps = (count: number): string => `${whole(count)} ${count === 1 ? "step" : "steps"}`;

const NTH = [
  "first",
  "second",
  "third",
  "fourth",
  "fifth",
  "sixth",
  "seventh",
  "eighth",
  "ninth",
  "tenth",
];

/** The ordinal of a place that counts from 0: of 4 "fifth". */
export function nth(place: number): string {
  const said = NTH[place];
  if (said !== undefined) return said;
  const n = place + 1;
  const ends: Readonly<Record<number, string>> = { 1: "st", 2: "nd", 3: "rd" };
  const teens = Math.floor(n / 10) % 10 === 1;
  return `${whole(n)}${(teens ? undefined : ends[n % 10]) ?? "th"}`;
}

/** The steps between two signed states: "steps 4 to 5". */
export function stepsWithin([low, high]: readonly [number, number]): string {
  return high - low <= 1 ? `step ${whole(low)}` : `steps ${whole(low)} to ${whole(high - 1)}`;
}

/** Where a party left the job, or what it was asked about, as the end of a sentence. */
export function since(kind: Kind, { step, interval }: Found): string {
  if (kind === "whole") return "";
  let where = "";
  if (step !== null) where = `step ${whole(step)}`;
  else if (interval !== null && kind !== "end") where = stepsWithin(interval);
  if (where === "") return "";
  if (kind === "step") return `, in ${where}`;
  if (kind === "end") return `, after ${where}`;
  return `${kind === "silence" ? "" : ","} when asked about ${where}`;
}

/** What the disputed place is. */
export function about({ operator, side }: Found, work: Work): string {
  if (operator === null) return "";
  const said = inWords(operator);
  const operation = work === "training" ? said : said.replace(/ of the step$/, "");
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
    return `The signed runs are equal after ${low}, and differ after ${high}.`;
  }
  const which = `${nth(step)} of ${steps(ofSteps)}, called step ${whole(step)}`;
  if (found.case === "0") {
    return (
      `Both signed runs are equal up to the ${which} (steps count from 0). One of them ends there, ` +
      "and the other one goes on."
    );
  }
  if (step === 0) {
    return `The signed runs differ from the ${which}, on (steps count from 0).${about(found, "training")}`;
  }
  // The work of the step may be equal, and its signed result alone another one (PROTOCOL 5.3).
  const after = found.clause === "5.3" ? "" : " What was signed after it differs.";
  return (
    `Both signed runs are equal before the ${which} (steps count from 0).${after}` +
    about(found, "training")
  );
}

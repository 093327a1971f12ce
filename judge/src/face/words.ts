/** A verdict in sentences for people who know no machine learning. */

import { actOf } from "./acts.ts";
import type { ConvictedParty } from "../protocol/judge.ts";
import type { Found, Judged, Side } from "./judged.ts";
import { introduced, nameOf, type Names } from "./names.ts";
import { difference, numberIn, plain } from "./numbers.ts";
import { inWords } from "./operations.ts";

export interface Words {
  readonly tone: "convicted" | "same" | "undecided" | "claim";
  readonly headline: string;
  /** Who is who. */
  readonly parties: readonly string[];
  /** Who did what, and from which step on. */
  readonly story: readonly string[];
  /** The disputed number, as each party and this judge give it; empty where there is none. */
  readonly figures: readonly {
    readonly label: string;
    readonly text: string;
    readonly note: string;
  }[];
  readonly meaning: readonly string[];
  readonly proves: readonly string[];
  readonly provesNot: readonly string[];
  /** Clauses, hashes and places, for those who want to look them up. */
  readonly details: readonly (readonly [string, string])[];
}

const SIDES: readonly Side[] = ["A", "B"];
/** Clauses whose claims are the first digits of digests, and no numbers. */
const DIGESTS = /^5\.(?:6\.[1245]|8)$/;

const keyOf = (found: Found, side: Side): string => found.signers[side === "A" ? 0 : 1];
const whole = (value: number): string => value.toLocaleString("en");

/** "An act" once, where both parties are convicted of the same one. */
function accusations(found: Found, name: (side: Side) => string): string[] {
  const acts = found.convicted.map(({ clause, case: of }) => actOf(clause, of));
  const [first, second] = acts;
  if (first !== undefined && second !== undefined && first.did === second.did) {
    return [`${name("A")} and ${name("B")} each ${first.did}.`];
  }
  return found.convicted.map(({ party }, i) => `${name(party)} ${acts[i]?.did ?? ""}.`);
}

/** What the disputed place is. */
function about(found: Found): string {
  if (found.operator === null) return "";
  const operation = inWords(found.operator);
  if (found.side === "output") return ` It is about what comes out of ${operation}.`;
  if (found.side === "input") return ` It is about what goes into ${operation}.`;
  return ` The place is ${operation}.`;
}

/** Where the two runs part. Steps count from 0, as in the specification and in every report. */
function place(found: Found, steps: number): string[] {
  if (found.step === null) return ["No single step of the training had to be looked at for this."];
  const step = `step ${whole(found.step)}`;
  if (found.phase < 2 && found.node === null)
    return [`The question is about the end of the run, at ${step} (steps count from 0).`];
  const total = steps > 0 ? ` of ${whole(steps)}` : "";
  const before =
    found.step === 0
      ? "Both parties started from the same model."
      : `After ${whole(found.step)}${total} steps the models of both parties were still the same.`;
  return [`${before} In ${step} their runs part (steps count from 0).${about(found)}`];
}

/** What one party's figure is worth. */
function note(found: Found, stated: string, isConvicted: boolean): string {
  if (stated === found.value) return "this is right";
  if (found.value === "")
    return isConvicted ? "false: it does not follow from its own numbers" : "";
  if (!isConvicted) return "";
  if (DIGESTS.test(found.clause ?? ""))
    return "false: another fingerprint than that of the right data";
  const off = difference(stated, found.value);
  return off === undefined ? "false" : `false: ${off}`;
}

function figures(found: Found, name: (side: Side) => string): Words["figures"] {
  if (found.claimed.every((text) => text === "")) return [];
  const guilty = new Set(found.convicted.map(({ party }) => party));
  const stated = SIDES.map((side, i) => {
    const text = found.claimed[i] ?? "";
    const said = note(found, text, guilty.has(side));
    return {
      label: `${name(side)} signed`,
      text: text === "" ? "nothing" : plain(text),
      note: said,
    };
  });
  if (found.value === "") return stated;
  const right =
    found.clause === "5.6.3"
      ? { label: "The job's data have", note: "proved here" }
      : { label: "By the job's rules it is", note: "computed here" };
  return [...stated, { ...right, text: plain(found.value) }];
}

/** The false number in one sentence, for those who read no further. */
function falseNumber(found: Found, name: (side: Side) => string): string[] {
  if (found.value === "" || DIGESTS.test(found.clause ?? "")) return [];
  return found.convicted.flatMap(({ party }) => {
    const stated = found.claimed[party === "A" ? 0 : 1];
    if (numberIn(stated) === undefined || numberIn(found.value) === undefined) return [];
    const off = difference(stated, found.value);
    const how = off === undefined ? "" : ` That is ${off}.`;
    const rules = found.clause === "5.6.3" ? "the job's data have" : "the job's rules give";
    return [`${name(party)} says ${plain(stated)} where ${rules} ${plain(found.value)}.${how}`];
  });
}

const CANNOT_SHOW =
  "It does not show why: a broken machine signs the same false number as a person who means to cheat.";
const KEYS =
  "It does not show which person or company holds a key. That you must know from elsewhere.";
const QUALITY = "It says nothing about whether the model is good, or safe to use.";

function aboutConviction(
  found: Found,
  name: (side: Side) => string,
): Pick<Words, "proves" | "provesNot"> {
  const accepted =
    found.accepted_party === null
      ? "No run is accepted: the model of neither party is shown to be right."
      : `It does not show that ${name(found.accepted_party)}'s run is right everywhere. That run was ` +
        "not shown wrong against this opponent, and no more.";
  if (found.rests_on === "referee") {
    return {
      proves: [
        "It shows that a referee whom you believe has signed: this party let its time pass.",
        "Without trust in that referee it shows nothing.",
      ],
      provesNot: [
        "It does not show a lie. A machine that fails, or a network that is down, is silent too.",
        accepted,
        KEYS,
      ],
    };
  }
  return {
    proves: [
      "It rests on statements that the convicted party has signed with its own private key, and on " +
        "the job. It rests on nobody's word, ours included.",
      "Anyone who has the evidence and the job can compute it again, and must come to the same result.",
    ],
    provesNot: [CANNOT_SHOW, accepted, KEYS, QUALITY],
  };
}

function convictedWords(
  judged: Judged,
  name: (side: Side) => string,
): Omit<Words, "parties" | "details"> {
  const { found } = judged;
  const acts = found.convicted.map(({ clause, case: of }) => actOf(clause, of).means);
  const both = found.convicted.length > 1;
  const first = found.convicted[0]?.party ?? "A";
  const silent = found.rests_on === "referee";
  const verb = silent ? "did not answer" : "signed something false";
  return {
    tone: "convicted",
    headline: both ? `${name("A")} and ${name("B")} both ${verb}` : `${name(first)} ${verb}`,
    story: [
      ...accusations(found, name),
      ...place(found, judged.steps),
      ...falseNumber(found, name),
    ],
    figures: figures(found, name),
    meaning: [...new Set(acts)],
    ...aboutConviction(found, name),
  };
}

function sameWords(name: (side: Side) => string): Omit<Words, "parties" | "details"> {
  return {
    tone: "same",
    headline: "Both runs are the same",
    story: [`${name("A")} and ${name("B")} have signed the same run, down to the last digit.`],
    figures: [],
    meaning: ["There is nothing to decide between them."],
    proves: ["Both parties stand by one and the same result of this job, each with its signature."],
    provesNot: [
      "It does not show that the result is right: two parties can agree on a false one. An audit, " +
        "which does the work again, shows that.",
      KEYS,
      QUALITY,
    ],
  };
}

function undecidedWords(
  judged: Judged,
  name: (side: Side) => string,
): Omit<Words, "parties" | "details"> {
  return {
    tone: "undecided",
    headline: "Undecided: nobody is shown to be wrong",
    story: [
      `${name("A")} and ${name("B")} differ, and both may have followed the job.`,
      ...place(judged.found, judged.steps),
    ],
    figures: figures(judged.found, name),
    meaning: [
      "This job lets a trainer choose between neighbouring numbers in rare places, and asks for a " +
        "record of the choices. The two runs made different choices, so they cannot be compared " +
        "further.",
    ],
    proves: ["Up to this place neither party is shown to have signed anything false."],
    provesNot: ["It does not show that either run is right.", KEYS, QUALITY],
  };
}

const CASES: Readonly<Record<string, string>> = {
  "0": "commitment, genesis or end of run",
  "1": "structure",
  "2a": "an input from the state",
  "2b": "an input from another node",
  "2c": "an input from the batch",
  "2d": "an input that is a scalar or the random key",
  "3": "an output",
};

function detailsOf(judged: Judged): [string, string][] {
  const { found } = judged;
  const rows: [string, string | null][] = [
    ["Job digest", judged.jobDigest],
    ["Contract", judged.contract],
    ["Evidence, SHA-256", judged.evidenceDigest],
    ...SIDES.flatMap((side, i): [string, string | null][] => [
      [`Run root of ${side}`, found.run_roots[i] ?? null],
      [`Key id of ${side}`, found.signers[i] ?? null],
      [`${side} states`, found.claimed[i] ?? null],
    ]),
    ["By the contract", found.value],
    ...found.convicted.map(({ party, clause }): [string, string] => [
      `${party} is convicted by`,
      `PROTOCOL ${clause}`,
    ]),
    ["Case", found.case === "" ? null : `${found.case}: ${CASES[found.case] ?? ""}`],
    ["Phase", String(found.phase)],
    ["Between the states after steps", found.interval?.join(" and ") ?? null],
    ["Step, from 0", found.step === null ? null : String(found.step)],
    ["Node", found.node === null ? null : `${found.node} (${found.operator ?? ""})`],
    ["Operand", found.side === null ? null : `${found.side} ${found.operand ?? ""}`],
    ["Element", found.element === null ? null : String(found.element)],
    ["Quantity", found.quantity],
    ["Referee of the forfeit, key id", found.referee],
    ["Accepted run", found.accepted],
    [
      "Game",
      `${found.rounds} rounds, ${found.received_bytes} bytes, ${found.terms} terms executed`,
    ],
  ];
  return rows.flatMap(([label, text]): [string, string][] =>
    text === null || text === "" ? [] : [[label, text]],
  );
}

/** All that a reader is told about a verdict. */
export function wordsOf(judged: Judged, names: Names): Words {
  const { found } = judged;
  const name = (side: Side): string => nameOf(side, keyOf(found, side), names);
  const said = found.agreement
    ? sameWords(name)
    : found.undecided
      ? undecidedWords(judged, name)
      : convictedWords(judged, name);
  const parties = SIDES.map((side) => introduced(side, keyOf(found, side), names));
  return { ...said, parties, details: detailsOf(judged) };
}

/** The sentence of a conviction in the object of `--json`. */
export function convictionSentence(one: Pick<ConvictedParty, "party" | "clause" | "case">): string {
  return `party ${one.party} ${actOf(one.clause, one.case).did}`;
}

/** A verdict in sentences for people who know no machine learning. */

import { actOf } from "./acts.ts";
import { actAbout } from "./answers.ts";
import type { ConvictedParty } from "../protocol/judge.ts";
import type { Found, Judged, Side } from "./judged.ts";
import { introduced, nameOf, visible, type Names } from "./names.ts";
import { difference, numberIn, plain } from "./numbers.ts";
import { about, since, stepsWithin, until } from "./places.ts";
import type { Work } from "./work.ts";

export interface Words {
  readonly tone: "convicted" | "same" | "undecided" | "claim";
  readonly headline: string;
  /** Who is who. */
  readonly parties: readonly string[];
  /** What follows, and how far the runs are equal. */
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
/** A silence is a referee's word: no signature of a party shows it (PROTOCOL 2.10). */
const BY_WORD = "A referee says that ";
/** Said where a sentence first speaks of one. */
const FINGERPRINT =
  "A fingerprint is a short code that changes if anything in what it stands for changes.";
/** Settings that nearly every job has, for those who do not know their names. */
const SETTINGS: Readonly<Record<string, string>> = {
  lr: "the learning rate (lr): how far each step changes the model",
};
/** Clauses whose claims are the first digits of digests, and no numbers. */
const DIGESTS = /^5\.(?:6\.[1245]|8)$/;

const keyOf = (found: Found, side: Side): string => found.signers[side === "A" ? 0 : 1];

/** What the party of a conviction did, and where. One step says nothing of where. */
function deed({ found, work }: Judged, { clause, case: of }: ConvictedParty): string {
  const { did, kind } = actAbout(work, clause, of);
  return work === "training" ? `${did}${since(kind, found)}` : did;
}

/** The verdict in one sentence, without its full stop. */
function verdict(judged: Judged, name: (side: Side) => string): string {
  const { found } = judged;
  const deeds = new Set(found.convicted.map((one) => deed(judged, one)));
  const [first] = deeds;
  const [one, other] = found.convicted;
  if (one === undefined || first === undefined) return "Nobody is shown wrong";
  const before = found.forfeit ? BY_WORD : "";
  if (other === undefined) return `${before}${name(one.party)} ${first}`;
  if (deeds.size > 1) return "Each party signed something false; no run is accepted";
  return `${before}${name("A")} and ${name("B")} both ${first}; no run is accepted`;
}

/** Who did what, where the sentence of the verdict does not say it of each. */
function accusations(judged: Judged, name: (side: Side) => string): string[] {
  const { convicted } = judged.found;
  if (new Set(convicted.map((one) => deed(judged, one))).size < 2) return [];
  return convicted.map((one) => `${name(one.party)} ${deed(judged, one)}.`);
}

/** All that is known of a party whose opponent was shown wrong. */
const notShownWrong = (party: string): string =>
  `${party} was not shown wrong here; it may still be wrong elsewhere.`;

/** What follows for the two runs. */
function consequence(found: Found, name: (side: Side) => string): string[] {
  const kept = found.accepted_party;
  const [lost] = found.convicted;
  if (kept === null || lost === undefined) return ["No run is accepted."];
  const [loser, winner] = [name(lost.party), name(kept)];
  return found.forfeit
    ? [`As you trust that referee, the run of ${winner} is the one that is left.`]
    : [`The run of ${loser} is not accepted. ${notShownWrong(winner)}`];
}

/** Where the true value comes from, by the case of PROTOCOL 1.6: a row's label. */
const TRUE_VALUES: Readonly<Record<string, string>> = {
  "0": "The runs prove",
  "2a": "The step before gave",
  "2b": "The earlier operation gave",
  "2c": "The job's data say",
  "2d": "The job says",
};
function trueValue({ found, work }: Judged): string {
  // The one step of an answer starts from the job's model, and reads the job's text.
  const of = work !== "training" && /^2[ac]$/.test(found.case) ? "2d" : found.case;
  return TRUE_VALUES[of] ?? "The judge computed";
}
const asTrueValue = (judged: Judged): string => `as t${trueValue(judged).slice(1)}`;

/** What one party's figure is worth. */
function note(judged: Judged, stated: string, isConvicted: boolean): string {
  const { found, disputed } = judged;
  if (!isConvicted) return stated === found.value ? asTrueValue(judged) : "not shown wrong";
  if (found.value === "") return "false: it does not follow from its own numbers";
  if (disputed?.what === "setting") return `false: not the fingerprint of ${disputed.value}`;
  if (DIGESTS.test(found.clause ?? "")) return "false: another fingerprint";
  const off = difference(stated, found.value);
  return off === undefined ? "false" : `false: ${off}`;
}

function figures(judged: Judged, name: (side: Side) => string): Words["figures"] {
  const { found, disputed } = judged;
  if (found.claimed.every((text) => text === "")) return [];
  const guilty = new Set(found.convicted.map(({ party }) => party));
  const stated = SIDES.map((side, i) => {
    const text = found.claimed[i] ?? "";
    return {
      label: `${name(side)} signed`,
      text: text === "" ? "nothing" : plain(text),
      note: note(judged, text, guilty.has(side)),
    };
  });
  if (found.value === "") return stated;
  const value = plain(found.value);
  const text = disputed?.what === "setting" ? `${disputed.value} (fingerprint ${value})` : value;
  return [...stated, { label: trueValue(judged), text, note: "" }];
}

/** What the dispute came down to, where it is the job's own data or setting, or a fingerprint. */
function subject({ found, disputed, work }: Judged, name: (side: Side) => string): string[] {
  const guilty = found.convicted.map(({ party }) => name(party)).join(" and ");
  if (disputed?.what === "record" && work !== "training") {
    return [
      `${guilty} signed a false value for “${visible(disputed.field)}”, which is a part of what the ` +
        "job says: the text, and the settings.",
    ];
  }
  if (disputed?.what === "record") {
    return [
      `${guilty} signed a false value for the field “${visible(disputed.field)}” of record ` +
        `${disputed.record.toLocaleString("en")} of the data (records count from 0).`,
    ];
  }
  if (disputed?.what === "setting") {
    const setting = SETTINGS[disputed.name] ?? `the setting “${visible(disputed.name)}”`;
    return [
      `It is about ${setting}. The job says ${disputed.value}. ${FINGERPRINT} ${guilty} signed the ` +
        "fingerprint of another number, and no more than that, so the number cannot be shown.",
    ];
  }
  if (found.clause === "5.3" && found.case === "") {
    const result = work === "training" ? "The result of a step" : "The result";
    return [
      `${FINGERPRINT} ${result} is very many numbers, and only its fingerprint was ` +
        "signed. So no single number can be shown.",
    ];
  }
  return DIGESTS.test(found.clause ?? "") ? [FINGERPRINT] : [];
}

/** The false number in one sentence, for those who read no further. */
function falseNumber(judged: Judged, name: (side: Side) => string): string[] {
  const { found } = judged;
  if (found.value === "" || DIGESTS.test(found.clause ?? "")) return [];
  return found.convicted.flatMap(({ party }) => {
    const stated = found.claimed[party === "A" ? 0 : 1];
    if (numberIn(stated) === undefined || numberIn(found.value) === undefined) return [];
    const off = difference(stated, found.value);
    const how = off === undefined ? "" : ` What ${name(party)} signed is ${off}.`;
    const value = plain(found.value);
    return [`${name(party)} signed ${plain(stated)}. ${trueValue(judged)} ${value}.${how}`];
  });
}

const CANNOT_SHOW =
  "Why the signed statement is false: a broken machine signs the same as a cheat.";
const KEYS = "Which person holds a key. A key signs; whose it is, you must know from elsewhere.";
const NO_PLACE =
  "Where its run went wrong, if it did: a false answer ended the dispute before that was reached.";
const QUALITY =
  "That the job is a good one, or its model safe to use. This is about who followed the job.";

function aboutConviction(
  { found, work }: Judged,
  name: (side: Side) => string,
): Pick<Words, "proves" | "provesNot"> {
  if (found.rests_on === "referee") {
    return {
      proves: [
        "That a referee whom you trust has signed: this question was not answered. Without that " +
          "trust it proves nothing.",
      ],
      provesNot: [
        "That anybody lied. A machine that fails, or a network that is down, is silent too.",
        "That one run is false, or that the other one is true.",
        KEYS,
        QUALITY,
      ],
    };
  }
  const kinds = new Set(found.convicted.map((one) => actAbout(work, one.clause, one.case).kind));
  const guilty = found.convicted.map(({ party }) => name(party)).join(" and ");
  const noPlace = kinds.has("answer") ? [NO_PLACE] : [];
  const what =
    kinds.has("answer") && kinds.size === 1
      ? "an answer that a party of a true run does not give"
      : "something that cannot be true of a run of this job";
  const kept = found.accepted_party === null ? null : name(found.accepted_party);
  return {
    proves: [
      `That ${guilty} signed ${what}. The proof is the signature itself: anyone can check it with ` +
        "their own copy of the judge, and no witness has to be believed.",
    ],
    provesNot: [
      CANNOT_SHOW,
      ...noPlace,
      ...(kept === null ? [] : [`That the run of ${kept} is true. ${notShownWrong(kept)}`]),
      KEYS,
      QUALITY,
    ],
  };
}

function convictedWords(
  judged: Judged,
  name: (side: Side) => string,
): Omit<Words, "parties" | "details"> {
  const { found, work } = judged;
  const means = found.convicted.map(({ clause, case: of }) => actAbout(work, clause, of).means);
  const place = about(found, work).trim();
  return {
    tone: "convicted",
    headline: verdict(judged, name),
    story: [
      ...accusations(judged, name),
      ...consequence(found, name),
      ...(work === "training" ? [until(found, judged.steps)] : place === "" ? [] : [place]),
      ...subject(judged, name),
      ...falseNumber(judged, name),
    ],
    figures: figures(judged, name),
    meaning: [...new Set(means)],
    ...aboutConviction(judged, name),
  };
}

/** From where to where two runs are equal, as people know it. */
const WHOLE: Readonly<Record<Work, string>> = {
  training: "from the first step to the final model",
  answer: "from the model to the last piece of the answer",
  encoding: "from the model to the last number of the result",
};

function sameWords(
  { found, work }: Judged,
  name: (side: Side) => string,
): Omit<Words, "parties" | "details"> {
  const isOneKey = keyOf(found, "A") === keyOf(found, "B");
  return {
    tone: "same",
    headline: "The parties agree: both have signed the same run",
    story: [`The runs of ${name("A")} and ${name("B")} are equal to the last bit, ${WHOLE[work]}.`],
    figures: [],
    meaning: ["There is nothing to decide between them."],
    proves: [
      isOneKey
        ? "One key has signed this result of this job, twice."
        : "Both parties stand by one and the same result of this job, each with its signature.",
    ],
    provesNot: [
      ...(isOneKey
        ? ["That anybody else confirms the result: both parties have one and the same key."]
        : []),
      "That the result is right: two parties can agree on a false one. An audit, which does the " +
        "work again, shows that.",
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
    headline: "It could not be decided: the runs differ, and neither party is shown wrong",
    story: [
      `${name("A")} and ${name("B")} differ, and both may have followed the job.`,
      until(judged.found, judged.steps),
    ],
    figures: figures(judged, name),
    meaning: [
      "This job lets a trainer choose between neighbouring numbers in rare places, and asks for a " +
        "record of the choices. The two runs made different choices, so they cannot be compared " +
        "further.",
    ],
    proves: ["Up to this place neither party is shown to have signed anything false."],
    provesNot: ["That either run is right.", KEYS, QUALITY],
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
      [`${side} signed`, found.claimed[i] ?? null],
    ]),
    [trueValue(judged), found.value],
    ...found.convicted.map(({ party, clause }): [string, string] => [
      `The clause against ${party}`,
      `PROTOCOL ${clause}`,
    ]),
    ["Case", found.case === "" ? null : `${found.case}: ${CASES[found.case] ?? ""}`],
    ["Phase", String(found.phase)],
    ["Between two signed states", found.interval === null ? null : stepsWithin(found.interval)],
    ["Step, from 0", found.step === null ? null : String(found.step)],
    ["Operation", found.node === null ? null : `${found.node} (${found.operator ?? ""})`],
    ["Operand", found.side === null ? null : `${found.side} ${found.operand ?? ""}`],
    ["Place", found.element === null ? null : String(found.element)],
    ["Quantity", found.quantity],
    ["Referee of the forfeit, key id", found.referee],
    ["Accepted run", found.accepted],
    [
      "Size of the dispute",
      `${found.rounds} rounds, ${found.received_bytes} bytes, ${found.terms} terms executed`,
    ],
  ];
  return rows.flatMap(([label, text]): [string, string][] =>
    text === null || text === "" ? [] : [[label, text]],
  );
}

/** Whether the reader trusts a signer of runs; nothing where they have named none. */
function trusted(known: boolean | null): string {
  if (known === null) return "";
  return known ? " You trust this signer." : " It is none of the signers whom you trust.";
}

/** All that a reader is told about a verdict. */
export function wordsOf(judged: Judged, names: Names): Words {
  const { found } = judged;
  const name = (side: Side): string => nameOf(`Party ${side}`, keyOf(found, side), names);
  const said = found.agreement
    ? sameWords(judged, name)
    : found.undecided
      ? undecidedWords(judged, name)
      : convictedWords(judged, name);
  const parties = SIDES.map(
    (side, i) =>
      introduced(`Party ${side}`, keyOf(found, side), names) + trusted(found.trusted[i] ?? null),
  );
  return { ...said, parties, details: detailsOf(judged) };
}

/** The sentence of a conviction in the object of `--json`. */
export function convictionSentence(one: Pick<ConvictedParty, "party" | "clause" | "case">): string {
  const { did, kind } = actOf(one.clause, one.case);
  return `${kind === "silence" ? "a referee says that " : ""}party ${one.party} ${did}`;
}

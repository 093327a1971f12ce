/** What lies on the table, and what can be judged from it. The page and the command both use it. */

import type { RunCommitment } from "../commitment.ts";
import { refuse } from "../errors.ts";
import type { JobFiles } from "../job/read.ts";
import type { JudgeOptions } from "../protocol/judge.ts";
import type { SessionOutcome } from "../session/log.ts";
import type { PublicKey } from "../signatures.ts";
import type { Carried } from "./carried.ts";
import { commitmentWords } from "./commitments.ts";
import { assembleJob, lacking, programNames, type Assembled, type Given } from "./files.ts";
import type { Found, Judged } from "./judged.ts";
import { byKeyId, type Names } from "./names.ts";
import { partiesOf, sessionWords } from "./sessions.ts";
import { wordsOf, type Words } from "./words.ts";
import type { Work } from "./work.ts";

/** Those who judge. Each of the four refuses what it is not given in order. */
export interface Court {
  judge(evidence: Uint8Array, job: JobFiles, options: JudgeOptions): Judged;
  readLog(entries: readonly Uint8Array[], job: JobFiles): SessionOutcome;
  workOf(job: JobFiles): Work;
  digestOf(job: JobFiles): string;
}

export interface Basis {
  readonly short: string;
  readonly full: readonly string[];
}

/** Something that was judged. The words are made anew where names change. */
export interface Result {
  readonly kind: "verdict" | "session" | "claims";
  /** A verdict in facts, for programs that read the page; null where no game was judged. */
  readonly found: Found | null;
  /** The keys that a reader may name: a label, and a key id (COMMITMENTS 9.1). */
  readonly keys: readonly (readonly [string, string])[];
  readonly byMaker: ReadonlyMap<string, string>;
  words(names: Names): Words;
  /** By which job it was judged. */
  readonly basis: Basis;
}

export interface Waiting {
  readonly kind: "waiting";
  /** What is still needed. */
  readonly sentence: string;
}

interface Table {
  evidence: Uint8Array | null;
  manifest: Uint8Array | null;
  page: Carried | null;
  readonly programs: Uint8Array[];
  readonly commitments: RunCommitment[];
  readonly entries: Map<number, Uint8Array>;
  readonly referees: PublicKey[];
}

/** The last one counts where only one can be judged. */
function laidOut(given: readonly Given[]): Table {
  const table: Table = {
    evidence: null,
    manifest: null,
    page: null,
    programs: [],
    commitments: [],
    entries: new Map(),
    referees: [],
  };
  for (const one of given) {
    if (one.kind === "evidence") table.evidence = one.bytes;
    else if (one.kind === "manifest") table.manifest = one.bytes;
    else if (one.kind === "program") table.programs.push(one.bytes);
    else if (one.kind === "commitment") table.commitments.push(one.commitment);
    else if (one.kind === "entry") table.entries.set(one.index, one.bytes);
    else if (one.kind === "key") table.referees.push(one.key);
    else [table.page, table.evidence] = [one.carried, one.carried.evidence];
  }
  return table;
}

interface Job extends Assembled {
  readonly from: "reader" | "page";
}

/** The job that a page carries: by the names of its files, which has to have each text of the job
 * and no other file (PROTOCOL 8.6.1). */
export function jobOfPage(page: Carried): Assembled {
  const programs = new Map(page.job);
  programs.delete("job.json");
  const manifest = page.job.get("job.json") ?? new Uint8Array();
  const wanted = programNames(manifest);
  if (wanted.length !== programs.size || !wanted.every((name) => programs.has(name))) {
    throw refuse("The page does not carry exactly the files of its job.");
  }
  return { files: { manifest, programs }, missing: [] };
}

/** The reader's own job goes before the one of a page. A page's program text serves the reader's
 * manifest too, because the manifest's digest binds it. */
function jobOf(table: Table): Job | null {
  const { manifest, page } = table;
  if (manifest === null) return page === null ? null : { ...jobOfPage(page), from: "page" };
  const carried = page === null ? [] : [...page.job.values()];
  return { ...assembleJob(manifest, [...carried, ...table.programs]), from: "reader" };
}

const waiting = (sentence: string): Waiting => ({ kind: "waiting", sentence });

function basisOf(job: Job, digest: string): Basis {
  if (job.from === "reader") {
    return {
      short: "Judged in this browser, with your own copy of the job.",
      full: [`You gave the job yourself. Its fingerprint is ${digest}.`],
    };
  }
  return {
    short: "Judged in this browser, over the job that came with the page.",
    full: [
      `The job came with the page. Its fingerprint is ${digest}. Only you can say whether that is the ` +
        "job that you mean. Drop your own copy of the job here, and it is judged with that.",
      "If you distrust whoever sent you this page, drop its file into your own copy of the judge. The " +
        "Python package tallystick writes one: tallystick judge-page -o judge.html.",
    ],
  };
}

function verdictOf(table: Table, evidence: Uint8Array, job: Job, court: Court): Result {
  const judged = court.judge(evidence, job.files, { referees: table.referees });
  return {
    kind: "verdict",
    found: judged.found,
    keys: [
      ["Party A", judged.found.signers[0]],
      ["Party B", judged.found.signers[1]],
    ],
    byMaker: byKeyId(table.page?.names ?? new Map()),
    words: (names) => wordsOf(judged, names),
    basis: basisOf(job, judged.jobDigest),
  };
}

function sessionOf(table: Table, job: Job, court: Court): Result {
  const indices = [...table.entries.keys()].sort((a, b) => a - b);
  const entries = indices.flatMap((index) => table.entries.get(index) ?? []);
  const outcome = court.readLog(entries, job.files);
  const [digest, work] = [court.digestOf(job.files), court.workOf(job.files)];
  return {
    kind: "session",
    found: null,
    keys: partiesOf(outcome).map(({ id, label }) => [label, id]),
    byMaker: byKeyId(table.page?.names ?? new Map()),
    words: (names) => sessionWords(outcome, entries.length, names, work),
    basis: basisOf(job, digest),
  };
}

function claimsOf(table: Table, job: Job | null, court: Court): Result {
  const digest = job === null || job.missing.length > 0 ? null : court.digestOf(job.files);
  const { commitments } = table;
  return {
    kind: "claims",
    found: null,
    keys: commitments.map(({ signer }, i) => [`Signer ${i + 1}`, signer.id]),
    byMaker: new Map(),
    words: (names) => commitmentWords(commitments, digest, names),
    basis: {
      short: "Read in this browser. Nothing was judged yet.",
      full:
        digest === null
          ? ["Drop the job beside it, and it is compared with the job."]
          : [`Compared with the job that you gave. Its fingerprint is ${digest}.`],
    },
  };
}

/** Judges what can be judged; the judges' refusals pass through. */
export function judgeAll(given: readonly Given[], court: Court): Result | Waiting {
  const table = laidOut(given);
  const job = jobOf(table);
  // The evidence of a session's games lies beside its log, and follows from it.
  const ofSession = table.entries.size > 0;
  const wanted = ofSession ? "this session's log" : "this evidence";
  if (table.evidence === null && !ofSession) {
    if (table.commitments.length > 0) return claimsOf(table, job, court);
    if (given.length === 0) return waiting("Nothing has been given yet.");
    return waiting("Now add what is to be judged: evidence, a session's log, or a run commitment.");
  }
  if (job === null) {
    return waiting(
      `Now add the job that ${wanted} is about: its job.json and the text of its program.`,
    );
  }
  if (job.missing.length > 0) return waiting(lacking(job));
  if (ofSession || table.evidence === null) return sessionOf(table, job, court);
  return verdictOf(table, table.evidence, job, court);
}

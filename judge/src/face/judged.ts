/** A verdict, and what it was reached over. The page, the command and the sentences of `words.ts`
 * read nothing else about it. */

import type { Judgement, Name } from "../protocol/judge.ts";
import type { Disputed } from "./sources.ts";
import type { Work } from "./work.ts";

/** What was found, in facts: the members of `tallystick judge --json` (docs/INTERFACE.md). */
export type Found = Judgement;

export type Side = Name;

export interface Judged {
  readonly found: Found;
  /** SHA-256 of the whole evidence file, as `sha256sum` gives it. */
  readonly evidenceDigest: string;
  readonly jobDigest: string;
  readonly contract: string;
  readonly steps: number;
  readonly work: Work;
  /** The job's own data or setting, where that was in dispute. */
  readonly disputed: Disputed | null;
}

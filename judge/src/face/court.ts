/** Those who judge: the jobs, the game and the session of this package, over a table of operators. */

import { toHex } from "../bytes.ts";
import { readTerms } from "../job/read.ts";
import type { OperatorTable } from "../operators/index.ts";
import { judge } from "../protocol/judge.ts";
import { readSession } from "../session/log.ts";
import { sha256 } from "../sha256.ts";
import type { Court } from "./desk.ts";
import { contractOf } from "./files.ts";
import { disputedOf } from "./sources.ts";
import { workOf } from "./work.ts";

export function courtOf(table: OperatorTable): Court {
  return {
    judge(evidence, job, options) {
      const terms = readTerms(job, table);
      const found = judge(evidence, terms, options);
      return {
        found,
        evidenceDigest: toHex(sha256(evidence)),
        jobDigest: toHex(terms.jobDigest),
        contract: contractOf(job.manifest),
        steps: terms.steps,
        work: workOf(terms),
        disputed: disputedOf(found, terms),
      };
    },
    readLog: (entries, job) => readSession(entries, readTerms(job, table)),
    workOf: (job) => workOf(readTerms(job, table)),
    digestOf: (job) => toHex(readTerms(job, table).jobDigest),
  };
}

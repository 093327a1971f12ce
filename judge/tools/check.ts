/**
 * Judges all that `vectors/` holds for a judge, and ends with code 1 at the first difference, which
 * it names. `tools/mutation.js` bundles it with one changed source; the quickest cases come first.
 */
import { isDeepStrictEqual } from "node:util";

import { toHex, toUtf8 } from "../src/bytes.ts";
import { readTerms } from "../src/job/read.ts";
import { readProgram } from "../src/program/read.ts";
import { readSession } from "../src/session/log.ts";
import { casesOf, fileOf, orRefused, TABLE, type Case } from "../test/program/cases.ts";
import { Bundle, bundleNames, type BundleCase } from "../test/protocol/bundles.ts";
import { bytesAt, FILE, TERMS } from "../test/session/golden.ts";

/** Bundles in which every clause of the game is broken once; they come before the large ones. */
const FIRST = ["refusals", "clauses", "clauses-later", "logs-later"];
/** Cases of each bundle that are judged before the others. */
const SAMPLE = 12;

function require(isAlike: boolean, what: string): void {
  if (isAlike) return;
  process.stdout.write(`${what}\n`);
  process.exit(1);
}

function judged(bundle: Bundle, name: string, one: BundleCase): void {
  const { code, found } = bundle.judge(one);
  const isAlike = "error" in one.found ? found === undefined : isDeepStrictEqual(found, one.found);
  require(code === one.code && isAlike, `${name}, ${one.name}`);
}

const first = casesOf("programs")[0]?.text ?? "";
const programsOf = ({ program, programs }: Case): Uint8Array[] =>
  (programs ?? [program ?? first]).map(toUtf8);

function texts(): void {
  for (const one of casesOf("programs")) {
    const digest = orRefused(() => toHex(readProgram(fileOf(one), TABLE).digest));
    require(digest === (one.digest ?? "refused"), `program, ${one.name}`);
  }
  for (const list of ["jobs", "jobs_2", "jobs_3"] as const) {
    for (const one of casesOf(list)) {
      const files = { manifest: fileOf(one), programs: programsOf(one) };
      const digest = orRefused(() => toHex(readTerms(files, TABLE).jobDigest));
      require(digest === (one.digest ?? "refused"), `${list}, ${one.name}`);
    }
  }
}

function sessions(): void {
  for (const { name, entries, outcome } of FILE.logs) {
    require(isDeepStrictEqual(
      readSession(entries.map(bytesAt), TERMS),
      outcome,
    ), `session, ${name}`);
  }
}

for (const name of FIRST) {
  const bundle = new Bundle(name);
  for (const one of bundle.cases) judged(bundle, name, one);
}
texts();
sessions();
for (const name of bundleNames().filter((other) => !FIRST.includes(other))) {
  const bundle = new Bundle(name);
  const every = Math.ceil(bundle.cases.length / SAMPLE);
  bundle.cases.forEach((one, number) => {
    if (number % every === 0) judged(bundle, name, one);
  });
}

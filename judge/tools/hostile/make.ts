/** Writes hostile evidence: `node make.mjs FOLDER`, each file with its job in a folder of its own. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import type { Query } from "../../src/protocol/queries.ts";
import { putTogether, takenApart } from "../../test/protocol/written.ts";
import { forged, termsOf, type Hostile } from "./forger.ts";
import { longestGame } from "./longest.ts";
import { longestAnswer, stored, until, type Stored } from "./replayed.ts";
import { dearTexts } from "./texts.ts";
import { wideJob } from "./wide.ts";

const LOGS = "withheld: a false value of a logged output, later, party 1";
const SUMS = "aten.mm, call 4: and false parts";

/** A stored game, up to the first query of a kind: its answers are as long as any may be. */
function longest(kind: Query["kind"], from: Stored): Hostile {
  const { evidence, manifest, program } = from;
  const terms = termsOf(manifest, program);
  const { arity, commitments: claims } = evidence;
  const bytes = forged({ terms, arity, claims, answer: until(kind, from) });
  return { name: `longest answers of kind "${kind}"`, evidence: bytes, manifest, program };
}

/** A whole game, then two longest answers to its first query: an equivocation (2.9). */
function equivocation({ answer, evidence, manifest, program }: Stored): Hostile {
  const terms = termsOf(manifest, program);
  const { arity, commitments: claims } = evidence;
  const last = claims[0].checkpoints - 1;
  const query = { kind: "checkpoints", indices: [0, last] } as const;
  const bytes = forged({
    terms,
    arity,
    claims,
    // The game stops before its last round, so that the second answer ends it.
    answer: (party, asked) => (asked.kind === "opening" ? undefined : answer(party, asked)),
    more: (sign) => [{ party: 1, bytes: sign(1, query, longestAnswer(query)) }],
  });
  return { name: "an equivocation of the longest answer", evidence: bytes, manifest, program };
}

/** Evidence as long as its job allows, whose bytes behind the game are one message after the other. */
function manyMessages({ bytes, manifest, program }: Stored, count: number): Hostile {
  const parts = takenApart(bytes);
  const messages = Array.from({ length: count }, () => ({
    party: 0 as const,
    bytes: new Uint8Array(Math.floor(9_000_000 / count)),
  }));
  const evidence = putTogether({ ...parts, messages });
  return { name: `${count} messages of no answer`, evidence, manifest, program };
}

function all(): Hostile[] {
  const [logs, sums] = [stored("logs", LOGS), stored("sums", SUMS)];
  const kinds = [
    "checkpoints",
    "states",
    "nodes",
    "node",
    "node hashes",
    "opening",
    "log",
  ] as const;
  return [
    longestGame(),
    wideJob("true"),
    wideJob("longest"),
    ...kinds.map((kind) => longest(kind, logs)),
    ...(["leaf", "values"] as const).map((kind) => longest(kind, sums)),
    equivocation(sums),
    manyMessages(logs, 3),
    manyMessages(logs, 600),
    ...dearTexts(),
  ];
}

const [, , folder = "."] = process.argv;
for (const [number, { evidence, manifest, name, program }] of all().entries()) {
  const place = join(folder, String(number).padStart(2, "0"));
  mkdirSync(place, { recursive: true });
  writeFileSync(join(place, "evidence.bin"), evidence);
  writeFileSync(join(place, "job.json"), manifest);
  writeFileSync(join(place, "program.txt"), program);
  writeFileSync(join(place, "name.txt"), name);
}

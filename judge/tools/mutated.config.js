/**
 * The tests with one change of `tools/changes.js` in the source (docs/proofs/judge.md):
 * `CHANGE=FILE:NUMBER npx vitest run --config tools/mutated.config.js`, the number counting the
 * changes of that file from 0. `tools/untested.js` runs it for all that the vectors do not notice.
 */
import { resolve } from "node:path";
import process from "node:process";

import { defineConfig, mergeConfig } from "vitest/config";

import own from "../vitest.config.ts";
import { changed } from "./changes.js";
import { compared } from "./switches.ts";

const [, file, number] = /^(.+):(\d+)$/.exec(process.env.CHANGE ?? "") ?? [];
if (file === undefined) throw new Error("name a change: CHANGE=FILE:NUMBER");

const SWITCHES = `
${compared.toString()}
const __off = (change) => change === ${number};
const __bound = (change, kind, a, b) => compared(kind, __off(change), a, b);
`;

export default mergeConfig(
  own,
  defineConfig({
    plugins: [
      {
        name: "change",
        enforce: "pre",
        transform: (_, id) =>
          id === resolve(file) ? `// @ts-nocheck\n${changed(id, 0).text}${SWITCHES}` : undefined,
      },
    ],
  }),
);

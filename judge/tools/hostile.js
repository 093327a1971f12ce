/**
 * What the dearest evidence costs (docs/proofs/judge.md, "Dear evidence").
 *
 *     node tools/hostile.js FOLDER               makes the evidence, and judges each in Node
 *     node tools/hostile.js FOLDER --page PAGE   drops each on the built page, in Chromium
 *
 * A line of JSON a file.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";

import { build } from "esbuild";

const HERE = join(dirname(fileURLToPath(import.meta.url)), "..");
const OPERATORS = join(HERE, "../vectors/operators.json");

/** Bundles a script of this folder; what it reads beside its sources it finds where they are. */
async function bundled(name, folder) {
  const outfile = join(folder, `${name}.mjs`);
  await build({
    absWorkingDir: HERE,
    entryPoints: [join("tools/hostile", `${name}.ts`)],
    bundle: true,
    platform: "node",
    format: "esm",
    outfile,
    preserveSymlinks: true,
    logLevel: "warning",
    plugins: [
      {
        name: "places",
        setup: ({ onLoad }) =>
          onLoad({ filter: /[/]test[/].*[.]ts$/ }, ({ path }) => ({
            contents: readFileSync(path, "utf8").replaceAll(
              "import.meta.url",
              JSON.stringify(pathToFileURL(path).href),
            ),
            loader: "ts",
          })),
      },
    ],
  });
  return outfile;
}

/** The last line that a script says. */
function said(script, ...words) {
  const { status, stderr, stdout } = spawnSync("node", [script, ...words], { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
  return stdout.trim();
}

const [, , given = ".", option, page = ""] = process.argv;
const folder = resolve(given);
mkdirSync(folder, { recursive: true });
if (option !== "--page") said(await bundled("make", folder), join(folder, "files"));
const places = readdirSync(join(folder, "files")).map((name) => join(folder, "files", name));
if (option === "--page") {
  process.stdout.write(`${said(await bundled("page", folder), resolve(page), ...places)}\n`);
} else {
  const one = await bundled("one", folder);
  for (const place of places) {
    const name = readFileSync(join(place, "name.txt"), "utf8");
    const cost = JSON.parse(said(one, place, OPERATORS));
    process.stdout.write(`${JSON.stringify({ name, ...cost })}\n`);
  }
}

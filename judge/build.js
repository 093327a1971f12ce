/**
 * Builds what people use: `node build.js [FOLDER]`, into `dist` where no folder is named.
 *
 *     judge.html            one page, all inside; reports that carry their evidence take its script
 *                           and its style
 *     tallystick-judge.js   the command
 *
 * The same sources give the same bytes. `node build.js --package` writes the page into the Python
 * package, and lists it there.
 */
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { Buffer } from "node:buffer";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const { version } = JSON.parse(readFileSync(join(HERE, "package.json"), "utf8"));
const MOST_GZIP = 300_000;
/** What a page's element of evidence begins with: it stands once in a page, so never in a script. */
const CARRIED = '<script type="application/vnd.tallystick.carried+json" id="tallystick-carried">';

async function bundled(entry, options) {
  const { outputFiles } = await build({
    absWorkingDir: HERE,
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    target: "es2022",
    // The paths of a checkout are no part of the result.
    preserveSymlinks: true,
    logLevel: "warning",
    ...options,
  });
  return outputFiles[0].text.trim();
}

/** An inline element's text: nothing in it ends the element or begins a comment. */
function inlined(text, what) {
  for (const bad of ["</script", "<!--", "</style", "\r", CARRIED]) {
    if (text.toLowerCase().includes(bad))
      throw new Error(`${what} has ${JSON.stringify(bad)} inside`);
  }
  return text;
}

const source = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;

function pageOf(script, style) {
  const policy =
    "default-src 'none'; form-action 'none'; base-uri 'none'; " +
    `script-src ${source(script)}; style-src ${source(style)}`;
  const parts = {
    POLICY: `<meta http-equiv="Content-Security-Policy" content="${policy}" />`,
    STYLE: `<style>${style}</style>`,
    SCRIPT: `<script>${script}</script>`,
    VERSION: version,
  };
  const template = readFileSync(join(HERE, "page/page.html"), "utf8");
  return template.replace(/<!--([A-Z]+)-->/g, (_, name) => parts[name]);
}

const script = inlined(await bundled("page/main.ts", { format: "iife" }), "the script");
const style = inlined(await bundled("page/page.css", {}), "the style");
const command = await bundled("cli.ts", {
  platform: "node",
  format: "esm",
  banner: { js: "#!/usr/bin/env node" },
});
const made = {
  "judge.html": pageOf(script, style),
  "tallystick-judge.js": `${command}\n`,
};

/** Writes the page into the Python package; a build of this version that was listed before gives
 * way. */
function packed(page) {
  const place = join(HERE, "../src/tallystick/report/judge");
  writeFileSync(join(place, "judge.html"), page);
  const list = join(place, "builds.json");
  const digest = (text) => createHash("sha256").update(text).digest("hex");
  const builds = JSON.parse(readFileSync(list, "utf8")).filter((one) => one.version !== version);
  builds.push({ version, script: digest(script), style: digest(style) });
  writeFileSync(list, `${JSON.stringify(builds, null, 2)}\n`);
}

const [, , given = join(HERE, "dist")] = process.argv;
if (given === "--package") packed(made["judge.html"]);
else {
  mkdirSync(given, { recursive: true });
  for (const [name, text] of Object.entries(made)) {
    const mode = name === "tallystick-judge.js" ? 0o755 : 0o644;
    writeFileSync(join(given, name), text, { mode });
    const [size, most] = [Buffer.byteLength(text), gzipSync(text, { level: 9 }).length];
    process.stdout.write(`${name}: ${size} bytes, ${most} with gzip\n`);
    if (most > MOST_GZIP) throw new Error(`${name} is over ${MOST_GZIP} bytes with gzip`);
  }
}

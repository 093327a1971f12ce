/**
 * Looks with axe-core for what keeps people out of pages, and counts it.
 *
 *     npx esbuild tools/accessible.ts --bundle --platform=node --format=esm --outfile=FILE.mjs
 *     node FILE.mjs AXE.min.js PAGE[,FILE...]...
 *
 * FILE... are chosen in the drop page first. Each page is looked at with every fold open, on a phone
 * and on a desktop, light and dark. Exit code 1 where anything is found.
 */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { CHROMIUM, openTab } from "../test/page/chromium.ts";

interface Finding {
  readonly id: string;
  readonly impact: string | null;
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
}

const [, , axe = "", ...pages] = process.argv;
const source = readFileSync(axe, "utf8");
if (CHROMIUM === undefined) throw new Error("there is no Chromium here");
const folder = mkdtempSync(join(tmpdir(), "accessible-"));
const tab = await openTab(CHROMIUM);
let [violations, unsure] = [0, 0];

async function lookAt(what: string): Promise<void> {
  await tab.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))");
  await tab.evaluate(`window.found = null;
    axe.run(document).then(({ violations, incomplete, passes }) => {
      window.found = JSON.stringify({ violations, incomplete, passes: passes.length });
    });`);
  await tab.until("window.found !== null");
  const found = JSON.parse(String(await tab.evaluate("window.found"))) as {
    violations: Finding[];
    incomplete: Finding[];
    passes: number;
  };
  violations += found.violations.length;
  unsure += found.incomplete.length;
  const counts = `${found.violations.length} violations, ${found.incomplete.length} unsure`;
  console.log(`${what}: ${counts}, ${found.passes} rules passed`);
  for (const { id, impact, nodes } of [...found.violations, ...found.incomplete]) {
    console.log(`  ${id} (${impact ?? "unsure"}), ${nodes.length} elements`);
    for (const { html, failureSummary } of nodes.slice(0, 3)) {
      console.log(`    ${html.slice(0, 160)}\n      ${(failureSummary ?? "").slice(0, 300)}`);
    }
  }
}

for (const given of pages) {
  const [page = "", ...files] = given.split(",").map((path) => resolve(path));
  for (const width of [390, 1280]) {
    for (const scheme of ["light", "dark"] as const) {
      await tab.look(width, scheme, join(folder, "look.png"));
      await tab.open(page);
      if (files.length > 0) {
        await tab.choose("tallystick-files", files);
        await tab.until("document.querySelector('article') !== null");
      }
      await tab.until("!document.body.innerText.includes('Judging…')");
      await tab.evaluate(source);
      await lookAt(`${page.split("/").pop() ?? ""}, ${files.length} files, ${width}, ${scheme}`);
    }
  }
}
await tab.close();
rmSync(folder, { recursive: true });
console.log(`all: ${violations} violations, ${unsure} unsure`);
process.exit(violations === 0 ? 0 : 1);

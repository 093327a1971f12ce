/**
 * Drops the evidence of folders of `make.ts` on the built page, in one headless Chromium:
 * `node page.mjs PAGE FOLDER...`. For each it says in a line of JSON the milliseconds from the choice
 * of the files to the verdict on the page, by the clock (`ms`) and of a processor (`cpu`), those
 * without the evidence (`job`: with its first
 * bytes only, which are refused when the job has been read), and the page's headline.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { CHROMIUM, openTab } from "../../test/page/chromium.ts";

/** Enough for the page to know it as evidence. */
const BEGINNING = 64;

/** Measures in the page itself, so that nothing is added by the way to it. */
const WATCH = `{
  let began = 0;
  window.cost = null;
  const noted = () => { began = performance.now(); };
  document.getElementById("tallystick-files").addEventListener("change", noted, true);
  const watched = document.querySelector(".result");
  new MutationObserver(() => {
    if (watched.querySelector("article") !== null) window.cost = performance.now() - began;
  }).observe(watched, { childList: true });
}`;

const [, , page = "", ...places] = process.argv;
if (CHROMIUM === undefined) throw new Error("there is no Chromium here");
const tab = await openTab(CHROMIUM);
const folder = mkdtempSync(join(tmpdir(), "hostile-"));

interface Cost {
  readonly ms: number;
  readonly cpu: number;
}

async function cost(files: readonly string[]): Promise<Cost> {
  await tab.open(page);
  await tab.evaluate(WATCH);
  const before = await tab.worked();
  await tab.choose("tallystick-files", files);
  await tab.until("window.cost !== null");
  const ms = Math.round(Number(await tab.evaluate("window.cost")));
  return { ms, cpu: Math.round((await tab.worked()) - before) };
}

for (const place of places) {
  const [evidence, ...job] = ["evidence.bin", "job.json", "program.txt"].map((name) =>
    join(place, name),
  );
  if (evidence === undefined) throw new Error("no evidence");
  const beginning = join(folder, "evidence.bin");
  writeFileSync(beginning, readFileSync(evidence).subarray(0, BEGINNING));
  const without = await cost([beginning, ...job]);
  const all = await cost([evidence, ...job]);
  const headline = await tab.evaluate("document.querySelector('.result h2').innerText");
  const name = readFileSync(join(place, "name.txt"), "utf8");
  process.stdout.write(`${JSON.stringify({ name, ...all, job: without, headline })}\n`);
}
await tab.close();
rmSync(folder, { recursive: true });

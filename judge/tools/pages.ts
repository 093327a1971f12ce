/**
 * Opens pages in one headless Chromium, one after the other, and says what each has judged of itself.
 * tests/adversary/pages_in_browser.py compares that with the judge of the package.
 *
 * Each line of standard input is the path of a page. Each gets a line of JSON: `ran`, whether the
 * judge in the page ran; `found`, its verdict, or null; `refused`, why it has none, or null; and
 * `requests`, how many addresses were asked for in all, of them `foreign` which are no file.
 */
import { createInterface } from "node:readline";

import { CHROMIUM, openTab } from "../test/page/chromium.ts";

const ARTICLE = "document.querySelector('#tallystick-judge article')";
const STATUS = "document.querySelector('#tallystick-judge [role=status]')";

interface Said {
  readonly ran: boolean;
  readonly found: string | null;
  readonly refused: string | null;
}

/** The part of `Said` that an expression in the page gives. */
const SAID = `({
  ran: ${STATUS} !== null,
  found: ${ARTICLE}?.dataset.found ?? null,
  refused: ${ARTICLE}?.classList.contains('is-refused') ? ${ARTICLE}.innerText : null,
})`;

/** That the judge of this very page has ended, or did not begin. */
const ended = (path: string): string =>
  `location.pathname === ${JSON.stringify(path)} && document.readyState === 'complete' &&
   !(${STATUS}?.textContent ?? '').startsWith('Judging')`;

if (CHROMIUM === undefined) throw new Error("there is no Chromium here");
const tab = await openTab(CHROMIUM);
for await (const path of createInterface({ input: process.stdin })) {
  await tab.open(path);
  await tab.until(ended(path));
  const { ran, found, refused } = (await tab.evaluate(SAID)) as Said;
  const { requests } = tab;
  const foreign = requests.filter((said) => !said.includes('"url":"file:///')).length;
  const judged: unknown = found === null ? null : JSON.parse(found);
  const answer = { ran, found: judged, refused, requests: requests.length, foreign };
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await tab.close();

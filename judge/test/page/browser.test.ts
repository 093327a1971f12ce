import { Buffer } from "node:buffer";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { actOf } from "../../src/face/acts.ts";
import { OPENING, writeCarried } from "../../src/face/carried.ts";
import { caseOf } from "../face/material.ts";
import { bytesOfVectors, jsonOfVectors } from "../vectors.ts";
import { CHROMIUM, openTab, type Tab } from "./chromium.ts";

const BUILD = new URL("../../build.js", import.meta.url).pathname;
const FOLDER = mkdtempSync(join(tmpdir(), "judge-browser-"));
const PAGE = join(FOLDER, "judge.html");
const CASE = caseOf("attacks", "ordered/1: lie-output, party 0");
const SILENT = caseOf("attacks", "ordered/1: silent, party 0");
/** The generator of Ed25519's group as a public key (RFC 8032, 5.1), which is no referee's. */
const OTHER_KEY = `-----BEGIN PUBLIC KEY-----
${Buffer.from(`302a300506032b657003210058${"66".repeat(31)}`, "hex").toString("base64")}
-----END PUBLIC KEY-----
`;
const file = (name: string, bytes: Uint8Array | string): string => {
  const path = join(FOLDER, name);
  writeFileSync(path, bytes);
  return path;
};
const jobFiles = (): string[] => [...CASE.job].map(([name, bytes]) => file(name, bytes));

/** The page with evidence inside, as a report carries it. */
function carrying(names: ReadonlyMap<string, string>, one = CASE): string {
  const text = writeCarried({ evidence: one.evidence, job: one.job, names });
  const page = readFileSync(PAGE, "utf8");
  return page.replace('<main id="', () => `${OPENING}${text}</script><main id="`);
}

/** Such a page with a first sentence of its own, as a report has one. */
function claiming(sentence: string, one = CASE): string {
  const page = carrying(new Map(), one).replace(/<header>.*?<\/header>/s, "");
  return page.replace('<main id="', () => `<main><h1>${sentence}</h1></main><main id="`);
}

const TEXT = "document.getElementById('tallystick-judge').innerText";
const LIE = `${actOf("6.5", "3").did}, in step 4`;
const HEADLINE = "(document.querySelector('article h2')?.textContent ?? '')";
const FACTS = "document.querySelector('article').dataset.found";

describe.skipIf(CHROMIUM === undefined)("in a browser", () => {
  let tab: Tab;

  beforeAll(async () => {
    expect(spawnSync(process.execPath, [BUILD, FOLDER]).status).toBe(0);
    tab = await openTab(CHROMIUM ?? "");
  }, 120_000);

  afterAll(async () => {
    await tab.close();
    rmSync(FOLDER, { recursive: true });
  });

  test("evidence and a job that are chosen are judged", async () => {
    await tab.open(PAGE);
    await tab.choose("tallystick-files", [file("one", CASE.evidence)]);
    await tab.until(`${TEXT}.includes('Now add the job')`);
    await tab.choose("tallystick-files", jobFiles());
    await tab.until(`${HEADLINE} === 'Party A ${LIE}'`);
    const text = String(await tab.evaluate(TEXT));
    expect(text).toContain("-0.29162434");
    expect(text).toContain("with your own copy of the job");
    expect(await tab.evaluate("document.querySelector('[role=status]').textContent")).toBe(
      `Result: Party A ${LIE}.`,
    );
  });

  test("a name that the reader types is used, and is text and no markup", async () => {
    await tab.evaluate(`(() => {
      const field = document.querySelector('.names input');
      field.value = '<b>Alice</b>';
      field.dispatchEvent(new Event('input'));
    })()`);
    expect(await tab.evaluate(HEADLINE)).toBe(`<b>Alice</b> ${LIE}`);
    expect(await tab.evaluate("document.querySelector('article b')")).toBeNull();
  });

  test("altered evidence is refused, and convicts nobody", async () => {
    const altered = CASE.evidence.map((byte, i) => (i === 3000 ? byte ^ 1 : byte));
    await tab.choose("tallystick-files", [file("altered", altered)]);
    await tab.until(`${HEADLINE} === 'Not judged'`);
    expect(await tab.evaluate(TEXT)).toContain("That shows nobody wrong.");
  });

  test("silence needs the referee's key", async () => {
    await tab.evaluate("document.querySelector('#tallystick-judge > button').click()");
    await tab.choose("tallystick-files", [file("silent", SILENT.evidence), ...jobFiles()]);
    await tab.until(`${HEADLINE} === 'Your browser cannot confirm this'`);
    expect(await tab.evaluate(FACTS)).toBe(undefined);
    await tab.choose("tallystick-files", [file("other key", OTHER_KEY)]);
    await tab.until(`${TEXT}.includes('not that of the referee')`);
    expect(await tab.evaluate(FACTS)).toBe(undefined);
    await tab.choose("tallystick-files", [file("key", SILENT.referees[0] ?? "")]);
    await tab.until(`${HEADLINE}.startsWith('A referee says that Party A did not answer')`);
  });

  test("a report of a silence takes the referee's key, and then agrees", async () => {
    const claim = "A referee says that Party A did not answer when asked about step 4.";
    await tab.open(file("silence.html", claiming(claim, SILENT)));
    await tab.until(`${HEADLINE} === 'Your browser cannot confirm this'`);
    expect(await tab.evaluate(TEXT)).toContain("nothing is decided for you");
    await tab.choose("tallystick-files", [file("key", SILENT.referees[0] ?? "")]);
    await tab.until(`${HEADLINE} === 'Your browser agrees with this page'`);
  });

  test("it says whether it agrees with the first sentence of the report around it", async () => {
    await tab.open(file("agrees.html", claiming(`Party A ${LIE}.`)));
    await tab.until(`${HEADLINE} === 'Your browser agrees with this page'`);
    expect(await tab.evaluate(TEXT)).toContain(`Party A ${LIE}.`);
    const facts: unknown = JSON.parse(String(await tab.evaluate(FACTS)));
    expect(facts).toMatchObject({ ...CASE.found, convicted: [{ party: "A", clause: "6.5" }] });
    // Other evidence than the report's is compared with no sentence of it.
    await tab.choose("tallystick-files", [file("page.html", carrying(new Map()))]);
    await tab.until(`${HEADLINE} === 'Party A ${LIE}'`);
    expect(await tab.evaluate(TEXT)).not.toContain("does not say the same");
    await tab.open(file("differs.html", claiming(`Party B ${LIE}.`)));
    await tab.until(`${HEADLINE} === 'Party A ${LIE}'`);
    expect(await tab.evaluate(TEXT)).toContain("does not say the same");
  });

  test("a page that carries evidence judges it on opening, and then with the reader's job", async () => {
    const names = new Map([["11".repeat(32), "A & B"]]);
    await tab.open(file("carrying.html", carrying(names)));
    await tab.until(`${HEADLINE} === 'Party A ${LIE}'`);
    expect(await tab.evaluate(TEXT)).toContain("over the job that came with the page");
    expect(await tab.evaluate(TEXT)).toContain("drop its file into your own copy of the judge");
    const facts: unknown = JSON.parse(String(await tab.evaluate(FACTS)));
    expect(facts).toMatchObject({ ...CASE.found, convicted: [{ party: "A", clause: "6.5" }] });
    await tab.choose("tallystick-files", jobFiles());
    await tab.until(`${TEXT}.includes('with your own copy of the job')`);
  });

  test("a tag that is written otherwise carries nothing", async () => {
    const page = carrying(new Map()).replace("carried+json", "carried-json");
    await tab.open(file("otherwise.html", page));
    await tab.until(`${HEADLINE} === 'Not judged'`);
    expect(await tab.evaluate(FACTS)).toBe(undefined);
  });

  test("another copy of the judge takes the evidence out of such a page", async () => {
    await tab.open(PAGE);
    await tab.choose("tallystick-files", [file("carrying.html", carrying(new Map()))]);
    await tab.until(`${HEADLINE} === 'Party A ${LIE}'`);
  });

  test("a session's log is played again", async () => {
    const sessions = jsonOfVectors("protocol/sessions.json") as {
      job: Record<string, [number, number]>;
      logs: { name: string; entries: [number, number][] }[];
    };
    const data = new Uint8Array(bytesOfVectors("protocol/sessions.bin"));
    const write = (name: string, [at, length]: [number, number]): string =>
      file(name, data.slice(at, at + length));
    const log = sessions.logs.find(({ name }) => name === "a liar of three");
    const entries = (log?.entries ?? []).map((place, i) => write(`${String(i)}.bin`, place));
    const terms = Object.entries(sessions.job).map(([name, place]) => write(name, place));
    await tab.open(PAGE);
    await tab.choose("tallystick-files", [...entries.reverse(), ...terms]);
    await tab.until(`${HEADLINE} === 'One result is accepted, after a dispute'`);
    expect(await tab.evaluate(TEXT)).toContain("Party 3 lost game 0");
    await tab.evaluate(`(() => {
      const field = document.querySelectorAll('.names input')[2];
      field.value = 'Carol';
      field.dispatchEvent(new Event('input'));
    })()`);
    expect(await tab.evaluate(TEXT)).toContain("Carol lost game 0");
    expect(await tab.evaluate(TEXT)).toContain("Carol (Party 3, by your name for it)");
  });

  test("it fits a phone, and asks for nothing but its own file", async () => {
    for (const width of [390, 1280]) {
      await tab.look(width, "dark", join(FOLDER, "look.png"));
      expect(await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    }
    for (const request of tab.requests) expect(request).toContain('"url":"file:///');
    expect(tab.complaints).toEqual([]);
  });
});

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

import { afterAll, beforeAll, expect, test } from "vitest";

import { toUtf8 } from "../../src/bytes.ts";
import { carries, OPENING } from "../../src/face/carried.ts";

const BUILD = new URL("../../build.js", import.meta.url).pathname;
const FOLDERS = [0, 1].map(() => mkdtempSync(join(tmpdir(), "judge-build-")));
const NAMES = ["judge.html", "tallystick-judge.js"];
const read = (folder: number, name: string): Buffer =>
  readFileSync(join(FOLDERS[folder] ?? "", name));

/** The content of the page's one element of a name. */
function inside(name: string): string {
  const page = read(0, "judge.html").toString("utf8");
  return page.split(`<${name}>`)[1]?.split(`</${name}>`)[0] ?? "";
}

beforeAll(() => {
  // From two places: the folder that a build is started in is no part of it.
  FOLDERS.forEach((folder, i) => {
    const cwd = i === 0 ? tmpdir() : join(BUILD, "..");
    const built = spawnSync(process.execPath, [BUILD, folder], { cwd, encoding: "utf8" });
    expect(built.stderr).toBe("");
    expect(built.stdout).toMatch(/judge\.html: [0-9]+ bytes, [0-9]+ with gzip/);
  });
}, 120_000);

afterAll(() => {
  for (const folder of FOLDERS) rmSync(folder, { recursive: true });
});

test("two builds have the same files with the same bytes", () => {
  for (const folder of FOLDERS) expect(readdirSync(folder).sort()).toEqual(NAMES);
  for (const name of NAMES) expect(read(0, name).equals(read(1, name)), name).toBe(true);
});

test("no file is over 300 KB with gzip, or knows where it was built", () => {
  const here = new URL("../..", import.meta.url).pathname;
  for (const name of NAMES) {
    expect(gzipSync(read(0, name)).length).toBeLessThan(300_000);
    expect(read(0, name).includes(here), name).toBe(false);
    expect(read(0, name).includes("node_modules"), name).toBe(false);
  }
});

test("the page allows its own script and style by their digests, and nothing else", () => {
  const page = read(0, "judge.html").toString("utf8");
  const policy = /<meta http-equiv="Content-Security-Policy" content="([^"]*)"/.exec(page)?.[1];
  const [script, style] = ["script", "style"].map(
    (name) => `'sha256-${createHash("sha256").update(inside(name)).digest("base64")}'`,
  );
  expect(policy).toBe(
    "default-src 'none'; form-action 'none'; base-uri 'none'; " +
      `script-src ${String(script)}; style-src ${String(style)}`,
  );
  expect(page.match(/<script/g)).toHaveLength(1);
  expect(page.match(/<style/g)).toHaveLength(1);
});

test("the script may stand in a page that carries evidence", () => {
  expect(carries(read(0, "judge.html"))).toBe(false);
  expect(carries(toUtf8(`${OPENING}{}`))).toBe(true);
});

test("no text of the page becomes markup", () => {
  const script = inside("script");
  expect(script).not.toMatch(/innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b/);
  expect(script).not.toMatch(
    /\bfetch\(|XMLHttpRequest|WebSocket|localStorage|sessionStorage|indexedDB/,
  );
});

test("the Python package has this build, and lists it", () => {
  const place = new URL("../../../src/tallystick/report/judge/", import.meta.url);
  const again = "it is stale: run `node build.js --package` in judge/";
  expect(readFileSync(new URL("judge.html", place)).equals(read(0, "judge.html")), again).toBe(
    true,
  );
  const builds = JSON.parse(readFileSync(new URL("builds.json", place), "utf8")) as unknown[];
  const digest = (name: string): string => createHash("sha256").update(inside(name)).digest("hex");
  expect(builds.at(-1)).toMatchObject({ script: digest("script"), style: digest("style") });
});

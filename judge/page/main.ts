/** The page: files come in, what they are is said, and what can be judged is judged, here. */

import { toUtf8 } from "../src/bytes.ts";
import { refuse } from "../src/errors.ts";
import { CARRIED_ID, OPENING, readCarried } from "../src/face/carried.ts";
import { judgeAll, type Result } from "../src/face/desk.ts";
import { whatIs, type Given } from "../src/face/files.ts";
import { KEY_DIGITS, NO_NAMES, visible, type Names } from "../src/face/names.ts";
import { isUnbelieved, sentenceOf, unbelievedWords } from "../src/face/refusals.ts";
import { court } from "../court.ts";
import { bytesOf, dropped } from "./gather.ts";
import { element, folded, told } from "./view.ts";

const KINDS: Readonly<Record<Given["kind"], string>> = {
  evidence: "evidence of a dispute",
  commitment: "a signed run commitment",
  manifest: "a job",
  program: "the text of a program",
  page: "a page that carries evidence",
  entry: "an entry of a session's log",
  key: "the public key of a referee whom you trust",
};

/** So many files are named one by one. */
const LISTED = 12;

interface Taken {
  readonly name: string;
  /** What it is, or why it is not used. */
  readonly text: string;
  readonly given: Given | null;
}

const status = element("p", { role: "status", class: "status" });
const files = element("ul", { class: "files" });
const result = element("div", { class: "result" });
const picker = element("input", { type: "file", multiple: "", id: "tallystick-files" });
const folders = element("input", {
  type: "file",
  webkitdirectory: "",
  id: "tallystick-folder",
});
const again = element("button", { type: "button", hidden: "" }, "Start over");

/** The page's own evidence, if it carries any, is always there; the rest is what a reader gives. */
let own: Given[] = [];
let taken: Taken[] = [];

/** What stands in the result too is for those who hear the page, and is not shown twice. */
function say(sentence: string, isShown = true): void {
  status.textContent = sentence;
  status.classList.toggle("is-heard", !isShown);
}

/** The first sentence of the report around this judge, where what is judged is that report's own
 * evidence. */
function claimed(): string | null {
  const isOwn = taken.every(({ given }) => given?.kind !== "evidence" && given?.kind !== "page");
  return own.length > 0 && isOwn ? (document.querySelector("main h1")?.textContent ?? null) : null;
}

/** Lets the browser draw before a long computation. */
const drawn = (): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, 30);
  });

function nameFields(judged: Result, changed: (names: Map<string, string>) => void): HTMLElement[] {
  if (judged.keys.length === 0) return [];
  const names = new Map<string, string>();
  const fields = judged.keys.map(([label, key], i) => {
    const id = `tallystick-name-${String(i)}`;
    const field = element("input", { id, type: "text", autocomplete: "off", maxlength: "60" });
    field.addEventListener("input", () => {
      names.set(key, field.value);
      changed(names);
    });
    const text = `Your name for ${label}, whose key id begins with ${key.slice(0, KEY_DIGITS)}`;
    return element("p", {}, element("label", { for: id }, text), field);
  });
  const legend = element("legend", {}, "Do you know these keys? Name them, on this page only.");
  return [element("fieldset", { class: "names" }, legend, ...fields)];
}

/** Fills the article over a verdict. Where it is the one that the page around it claims, the page's
 * own words need not be said twice. */
function fill(judged: Result, names: Names, agrees: boolean, into: HTMLElement): string {
  const words = judged.words(names);
  const all = told(words, judged.basis.full);
  if (agrees) {
    into.replaceChildren(
      element(
        "p",
        {},
        `It judged the signed evidence again and found the same: ${words.headline}.`,
      ),
      element("p", { class: "basis" }, `${judged.basis.short} Nothing was sent.`),
      folded("All that the judge in your browser says", ...all),
    );
    return "Your browser agrees with this page";
  }
  const basis = element("p", { class: "basis" }, `${judged.basis.short} Nothing was sent.`);
  into.replaceChildren(basis, ...all);
  return words.headline;
}

function show(judged: Result): void {
  const claim = judged.kind === "verdict" ? claimed() : null;
  const agrees = claim === `${judged.words(NO_NAMES).headline}.`;
  const [title, body] = [element("h2", {}), element("div", {})];
  const article = element("article", {}, title);
  if (judged.found !== null) article.dataset["found"] = JSON.stringify(judged.found);
  const draw = (byReader: ReadonlyMap<string, string>): void => {
    const names = { byReader, byMaker: judged.byMaker };
    const words = judged.words(names);
    article.className = agrees ? "is-agreed" : `is-${words.tone}`;
    const open = [...body.querySelectorAll("details")].map((one) => one.open);
    title.textContent = fill(judged, names, agrees, body);
    for (const [i, one] of body.querySelectorAll("details").entries()) one.open = open[i] ?? false;
    say(`Result: ${words.headline}.`, false);
  };
  draw(new Map());
  if (claim !== null && !agrees) article.append(element("p", { class: "apart" }, APART));
  article.append(body, ...nameFields(judged, draw));
  result.replaceChildren(article);
}

const APART =
  "The first sentence of this page does not say the same. Rely on the words of this box, from a copy " +
  "of the judge that you got elsewhere, and not on the words around it.";

/** Why nothing was judged. A silence on the word of a referee whom nobody here has named is no fault
 * of the evidence. */
function refused(error: unknown): void {
  const keys = taken.filter(({ given }) => given?.kind === "key").length;
  const [title, words] = isUnbelieved(error)
    ? ["Your browser cannot confirm this", unbelievedWords(keys)]
    : ["Not judged", [`The reason: ${visible(sentenceOf(error))}`, "That shows nobody wrong."]];
  const paragraphs = words.map((sentence) => element("p", {}, sentence));
  result.replaceChildren(
    element("article", { class: "is-refused" }, element("h2", {}, title), ...paragraphs),
  );
  say(`${title}: ${visible(sentenceOf(error))}`, false);
}

function drawFiles(): void {
  const entries = taken.filter(({ given }) => given?.kind === "entry");
  const others = taken.filter(({ given }) => given?.kind !== "entry");
  const lines = others.slice(0, LISTED).map(({ name, text, given }) => {
    const shown = element("span", { class: "name" }, visible(name));
    return element("li", given === null ? { class: "unused" } : {}, shown, `: ${visible(text)}`);
  });
  if (entries.length > 0) {
    lines.push(element("li", {}, `Entries of a session's log: ${String(entries.length)}`));
  }
  const left = others.length - LISTED;
  if (left > 0) lines.push(element("li", {}, `Other files: ${String(left)}`));
  files.replaceChildren(...lines);
  again.hidden = taken.length === 0;
}

async function judgeNow(): Promise<void> {
  const given = [...own, ...taken.flatMap((one) => one.given ?? [])];
  if (given.length === 0) {
    result.replaceChildren();
    return;
  }
  say("Judging…");
  await drawn();
  try {
    const judged = judgeAll(given, court);
    if (judged.kind !== "waiting") {
      show(judged);
      return;
    }
    result.replaceChildren();
    say(judged.sentence);
  } catch (error) {
    refused(error);
  }
}

async function takenOf(file: File): Promise<Taken> {
  try {
    const bytes = await bytesOf(file);
    if (bytes === null) return { name: file.name, text: "too long to be judged", given: null };
    const given = whatIs(bytes);
    return { name: file.name, text: KINDS[given.kind], given };
  } catch (error) {
    const text = error instanceof DOMException ? "could not be read" : sentenceOf(error);
    return { name: file.name, text, given: null };
  }
}

/** Of a folder only what is of use is listed: it may be full of other files. */
async function take(given: readonly File[], fromFolder: boolean): Promise<void> {
  say("Reading…");
  const all: Taken[] = [];
  for (const file of given) all.push(await takenOf(file));
  const useful = fromFolder ? all.filter((one) => one.given !== null) : all;
  taken = [...taken, ...useful];
  drawFiles();
  if (useful.length === 0) say("In this folder there is nothing that can be judged.");
  else if (useful.every((one) => one.given === null)) say(useful[0]?.text ?? "");
  else await judgeNow();
}

function listen(zone: HTMLElement): void {
  for (const input of [picker, folders]) {
    input.addEventListener("change", () => {
      const given = [...(input.files ?? [])];
      input.value = "";
      void take(given, input === folders);
    });
  }
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("is-over");
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) zone.classList.remove("is-over");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("is-over");
    const transfer = event.dataTransfer;
    if (transfer === null) return;
    const folder = [...transfer.items].some(
      (item) => item.webkitGetAsEntry()?.isDirectory === true,
    );
    void dropped(transfer).then((given) => take(given, folder));
  });
  again.addEventListener("click", () => {
    taken = [];
    drawFiles();
    say("");
    void judgeNow();
    picker.focus();
  });
  window.addEventListener("beforeprint", () => {
    for (const one of result.querySelectorAll("details")) one.open = true;
  });
}

function zoneOf(carries: boolean): HTMLElement {
  const what = carries
    ? "Drop files of your own here, and it is judged again with them: the job (job.json and its " +
      "program's text), or the public key of a referee whom you trust."
    : "Drop evidence here, and the job that it is about (job.json and its program's text). Or a page " +
      "that carries evidence, run commitments, or a session's log. If the evidence ends by a silence, " +
      "also the public key of the referee, if you trust it.";
  return element(
    "div",
    { class: "zone" },
    element("p", { id: "tallystick-what" }, what),
    element(
      "p",
      { class: "choose" },
      picker,
      element("label", { for: picker.id }, "Choose files"),
      folders,
      element("label", { for: folders.id }, "Choose a folder"),
    ),
  );
}

/** What the page itself carries: its element, as the browser has read it. */
function carried(): Given[] {
  const elements = document.querySelectorAll(`[id="${CARRIED_ID}"]`);
  const [one] = elements;
  if (one === undefined) return [];
  if (elements.length > 1) throw refuse("This page carries evidence more than once.");
  // PROTOCOL 8.6.1 gives the tag's bytes; a browser keeps all of them but letter case and spaces.
  const attributes = [...one.attributes].map(({ name, value }) => `${name}="${value}"`);
  if (`<${[one.localName, ...attributes].join(" ")}>` !== OPENING) {
    throw refuse("The evidence in this page is written in a wrong way.");
  }
  return [{ kind: "page", carried: readCarried(toUtf8(one.textContent)) }];
}

function start(): void {
  const root = document.getElementById("tallystick-judge");
  if (root === null) return;
  const carries = document.getElementById(CARRIED_ID) !== null;
  const zone = zoneOf(carries);
  listen(zone);
  const table = [zone, files, again];
  root.replaceChildren(status, ...(carries ? [result, ...table] : [...table, result]));
  try {
    own = carried();
  } catch (error) {
    refused(error);
    return;
  }
  void judgeNow();
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();

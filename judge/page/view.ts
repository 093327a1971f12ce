/** Elements of the page. Text comes in by textContent alone: no string here is ever markup. */

import type { Words } from "../src/face/words.ts";

type Attributes = Readonly<Record<string, string>>;

/** An element with its attributes, its text and the elements in it. */
export function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  attributes: Attributes,
  ...content: readonly (Node | string)[]
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  made.append(...content);
  return made;
}

function section(title: string, ...content: readonly Node[]): HTMLElement {
  return element("section", {}, element("h3", {}, title), ...content);
}

function paragraphs(title: string, sentences: readonly string[]): HTMLElement[] {
  if (sentences.length === 0) return [];
  return [section(title, ...sentences.map((sentence) => element("p", {}, sentence)))];
}

function list(title: string, sentences: readonly string[]): HTMLElement[] {
  if (sentences.length === 0) return [];
  const items = sentences.map((sentence) => element("li", {}, sentence));
  return [section(title, element("ul", {}, ...items))];
}

function figures(words: Words): HTMLElement[] {
  if (words.figures.length === 0) return [];
  const rows = words.figures.map(({ label, text, note }) => {
    const kind = note.startsWith("false") ? "false" : "plain";
    return element(
      "tr",
      { class: `is-${kind}` },
      element("th", { scope: "row" }, label),
      element("td", { class: "figure" }, text),
      element("td", {}, note),
    );
  });
  const head = element(
    "tr",
    {},
    element("th", { scope: "col" }, "Who"),
    element("th", { scope: "col" }, "Value"),
    element("th", { scope: "col" }, "Finding"),
  );
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return [section("The disputed value", table)];
}

function details(words: Words): HTMLElement {
  const rows = words.details.flatMap(([label, text]) => [
    element("dt", {}, label),
    element("dd", {}, text),
  ]);
  return element(
    "details",
    {},
    element("summary", {}, "For experts: clauses, places and fingerprints"),
    element("dl", {}, ...rows),
  );
}

/** A part that is closed at first. */
export function folded(title: string, ...content: readonly Node[]): HTMLElement {
  return element("details", { class: "folded" }, element("summary", {}, title), ...content);
}

/** All that is said about something judged, but the headline. */
export function told(words: Words, basis: readonly string[]): HTMLElement[] {
  return [
    ...paragraphs("What happened", words.story),
    ...figures(words),
    ...paragraphs("What that means", words.meaning),
    ...list("What this proves", words.proves),
    ...list("What it does not prove", words.provesNot),
    ...list("Who is who", words.parties),
    ...paragraphs("By which job", basis),
    details(words),
  ];
}

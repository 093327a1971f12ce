"""What the site adds to the pages: lists of pages, parts made from the code, anchors of clauses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clauses
import command_pages
import error_pages
from contents import toctrees
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
# A line of a page, and what stands in its place on the site.
MADE: dict[str, Callable[[], str]] = {
    "<!-- commands: all -->": command_pages.table,
    "<!-- errors: tree -->": error_pages.tree,
    "<!-- errors: usage -->": lambda: error_pages.messages(usage=True),
    "<!-- errors: others -->": lambda: error_pages.messages(usage=False),
} | {
    f"<!-- commands: {page} -->": lambda page=page: command_pages.commands(page)  # type: ignore[misc]
    for page in command_pages.PAGES
}
_LINK = re.compile(r"\[([^\]\n]+)\]\(([^)#\s:]+)\)")
# What tells a reader of the file itself where the made part is; the site has that part.
_BARE = re.compile(r"<!-- bare file -->\n.*?<!-- end -->\n?", re.S)


def _directories(source: str, here: Path) -> str:
    """A link to a directory goes to its README where that is a page, else it is its name."""

    def replaced(found: re.Match[str]) -> str:
        target = here / found[2]
        if not target.is_dir():
            return found[0]
        if (target / "README.md").is_file():
            return f"[{found[1]}]({found[2].rstrip('/')}/README.md)"
        where = target.resolve().relative_to(ROOT)
        return found[1] if f"{where}" in found[1] else f"{found[1]} (`{where}/`)"

    return _LINK.sub(replaced, source)


_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.M | re.S)


def _diagram(found: re.Match[str]) -> str:
    """A diagram of states as two tables: no program draws it without a network or a script."""
    states, turns = [], []
    for line in found[1].splitlines()[1:]:
        words, _, said = line.strip().partition(" : ")
        said = said.replace("<br>", ": ").removeprefix(words.strip()).strip()
        if "-->" in words:
            start, end = (name.strip().replace("[*]", "●") for name in words.split("-->"))
            turns.append(f"| {start} | {end} | {said} |")
        elif said:
            states.append(f"| {words} | {said} |")
    made = ["| from | to | when |", "|---|---|---|", *turns]
    return "\n".join((["| state | |", "|---|---|", *states, ""] if states else []) + made)


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """The source of a page as the site has it."""
    text = source[0]
    for line, make in MADE.items():
        if line in text:
            text = text.replace(line, make())
            app.env.note_reread()  # the code may change where the page does not
    text = _BARE.sub("", text)
    text = _DIAGRAM.sub(_diagram, text)
    text = _directories(text, (ROOT / docname).parent)
    # The notes begin with a section, for they are read from a directory that says what they are.
    title = "# Notes on measurements\n\n" if docname == "benchmarks/NOTES" else ""
    source[0] = title + text + toctrees(docname)


def plain_stars(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are plain text: a star in them marks nothing."""
    for at, line in enumerate(lines):
        parts = line.split("`")
        lines[at] = "`".join(p if i % 2 else p.replace("*", r"\*") for i, p in enumerate(parts))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", plain_stars)
    app.connect("doctree-read", clauses.mark)
    app.connect("doctree-resolved", clauses.cite)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}

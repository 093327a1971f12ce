"""The text of a clause of spec/PROTOCOL.md, for people who do not have it at hand.

`clauses.json` is made from the specification by `python -m tallystick.report.clauses SPEC`; a
test holds it against the specification.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path

from tallystick.report.html import Safe, el, join, text

_FILE = "clauses.json"
_START = re.compile(r"(\d+\.\d+(?:\.\d+)?) (\S.*)")
_MARKUP = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\\(\*)")
_FENCE = "```"
_CELL = re.compile(r"(?<!\\)\|")


def clauses_of(specification: str) -> dict[str, str]:
    """Number -> text of every numbered clause, as the specification writes it.

    The text is the clause's paragraphs, lists, tables and formulas, up to the next clause or
    heading.
    """
    found: dict[str, list[str]] = {}
    current: list[str] = []
    fenced = False
    for line in specification.splitlines():
        start = _START.fullmatch(line)
        if not fenced and start is not None:
            current = found[start[1]] = [start[2]]
        elif not fenced and line.startswith("#"):
            current = []
        else:
            current.append(line)
        fenced ^= line.startswith(_FENCE)
    return {number: "\n".join(lines).strip() for number, lines in found.items()}


@cache
def _clauses() -> dict[str, str]:
    data: dict[str, str] = json.loads(files("tallystick.report").joinpath(_FILE).read_text("utf-8"))
    return data


def _marked(raw: str) -> Safe:
    """A line with its code and emphasis."""
    parts, at = [], 0
    for found in _MARKUP.finditer(raw):
        parts.append(text(raw[at : found.start()]))
        code, strong, emphasis, star = found.groups()
        name, inner = ("code", code) if code else ("strong", strong) if strong else ("em", emphasis)
        parts.append(text(star) if star else el(name, inner))
        at = found.end()
    return join(*parts, raw[at:])


def _row(line: str, cell: str) -> Safe:
    cells = [c.strip().replace("\\|", "|") for c in _CELL.split(line)[1:-1]]
    scope = "col" if cell == "th" else None
    return el("tr", *(el(cell, _marked(c), scope=scope) for c in cells))


def _block(lines: list[str]) -> Safe:
    """A paragraph, list, table or formula after the clause's first paragraph."""
    if lines[0].startswith(_FENCE):
        return el("pre", "\n".join(lines[1:-1]))
    if lines[0].startswith("|"):
        rows = (_row(line, "td") for line in lines[2:])
        return el("table", el("caption", "From the clause"), _row(lines[0], "th"), *rows)
    if lines[0].startswith("- "):
        return el("ul", *(el("li", _marked(line[2:])) for line in lines))
    return el("p", _marked(" ".join(lines)))


def clause_text(number: str) -> Safe | None:
    """The clause as markup; None where this build does not know it."""
    raw = _clauses().get(number)
    if raw is None:
        return None
    first, *rest = (block.split("\n") for block in raw.split("\n\n"))
    return join(_marked(" ".join(first)), *map(_block, rest))


def clause_quote(number: str) -> Safe:
    """The clause as a quotation, with its number."""
    words = clause_text(number) or "(see the specification)"
    return el("blockquote", el("span", f"PROTOCOL {number}", class_="number"), words)


def _write(specification: Path) -> None:
    made = clauses_of(specification.read_text("utf-8"))
    target = Path(__file__).with_name(_FILE)
    target.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))

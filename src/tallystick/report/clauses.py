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
_LINE = re.compile(r"(\d+\.\d+(?:\.\d+)?) (\S.*)")
_MARKUP = re.compile(r"`([^`]+)`|\*([^*]+)\*")


def clauses_of(specification: str) -> dict[str, str]:
    """Number -> text of every numbered clause, one to a line, as the specification writes them."""
    found = (_LINE.fullmatch(line.strip()) for line in specification.splitlines())
    return {m[1]: m[2] for m in found if m is not None}


@cache
def _clauses() -> dict[str, str]:
    data: dict[str, str] = json.loads(files("tallystick.report").joinpath(_FILE).read_text("utf-8"))
    return data


def clause_text(number: str) -> Safe | None:
    """The clause as markup (code and emphasis); None where this build does not know it."""
    raw = _clauses().get(number)
    if raw is None:
        return None
    parts, at = [], 0
    for found in _MARKUP.finditer(raw):
        parts.append(text(raw[at : found.start()]))
        code, emphasis = found.groups()
        parts.append(el("code", code) if code is not None else el("em", emphasis))
        at = found.end()
    return join(*parts, raw[at:])


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

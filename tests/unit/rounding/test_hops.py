"""From the map to the code in one hop: what docs/ARCHITECTURE.md says of record, follow, judge."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FORMS = ("bounded", "published")
_CELL = re.compile(
    r"`(?P<module>\w+)\.py`: `(?P<name>[\w.]+)`(?: \((?:NUMERICS )?(?P<clause>[\d.]+))?"
)
_GRID = re.compile(r"`numerics/grid\.py`: `(?P<name>[\w.]+)`")


def rows() -> dict[str, list[str]]:
    """Cells of the table of `contracts/replay/`, by question."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    section = text.split("## A step with a log\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {row[0].strip(): row[1:] for row in cells if len(row) == 3 and "`: `" in row[1]}


def resolved(module: str, name: str) -> Any:
    return reduce(getattr, name.split("."), importlib.import_module(f"tallystick.{module}"))


def test_every_question_has_its_row() -> None:
    found = [question.split(" (")[0] for question in rows()]
    assert found == ["which kernel runs a node", "record", "follow", "judge an entry"]


@pytest.mark.parametrize("question", rows())
@pytest.mark.parametrize("column", (0, 1), ids=FORMS)
def test_the_map_names_functions_that_exist_and_cite_their_clause(
    question: str, column: int
) -> None:
    cell = rows()[question][column]
    match = _CELL.search(cell)
    assert match is not None, cell
    module = f"contracts.replay.{FORMS[column]}.{match['module']}"
    found = resolved(module, match["name"])
    for grid in _GRID.finditer(cell):
        assert callable(resolved("numerics.grid", grid["name"]))
    if match["clause"] is not None:
        room = importlib.import_module(f"tallystick.{module}").__doc__
        assert match["clause"] in f"{room} {found.__doc__}", (module, match["clause"])

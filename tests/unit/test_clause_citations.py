"""Every clause that code, tests and documents cite exists, and operators cite where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.numerics.registry import all_ops

ROOT = Path(__file__).resolve().parents[2]
SPECS = ("NUMERICS", "COMMITMENTS", "PROGRAM", "OPENING", "THREATS", "ANSWERS", "CLAIMS")
ROOMS = ("benchmarks", "docs", "native", "spec", "src", "tests")
SUFFIXES = {".py", ".cpp", ".hpp", ".sh", ".md", ".txt", ".sollya"}

_NUMBER = r"\d+(?:\.\d+)*"
# "NUMERICS 3.2", "COMMITMENTS 1.6, 2.5 and 9", "PROGRAM 2.1-2.5"; a sentence's full stop is left.
_CITATION = re.compile(
    rf"\b({'|'.join(SPECS)})\s+(§?{_NUMBER}(?:(?:,\s|\sand\s|\sto\s|–|-|/)§?{_NUMBER})*)"
)


def clauses(text: str) -> dict[str, str]:
    """Clause number to its text; a section's text is that of its clauses too."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if start := re.match(rf"(?:##+ )?({_NUMBER})\.?\s", line):
            number = start[1]
            found[number] = ""
        elif not found:
            continue
        parts = number.split(".")
        for depth in range(1, len(parts) + 1):
            found[".".join(parts[:depth])] += line + "\n"
    return found


@pytest.fixture(scope="module")
def spec() -> dict[str, dict[str, str]]:
    return {name: clauses((ROOT / "spec" / f"{name}.md").read_text()) for name in SPECS}


def citations() -> Iterator[tuple[str, str, str]]:
    """(place, document, clause number) of every citation."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix not in SUFFIXES or path == Path(__file__).resolve():
                continue
            for cited in _CITATION.finditer(path.read_text()):
                for number in re.findall(_NUMBER, cited[2]):
                    yield str(path.relative_to(ROOT)), cited[1], number


def test_cited_clauses_exist(spec: dict[str, dict[str, str]]) -> None:
    cited = list(citations())
    assert {document for _, document, _ in cited} == set(SPECS) and len(cited) > 400
    assert [c for c in cited if c[2] not in spec[c[1]]] == []


def test_operators_cite_the_clause_that_names_them(spec: dict[str, dict[str, str]]) -> None:
    numerics = spec["NUMERICS"]
    for op in all_ops().values():
        # An overload is written only where overloads differ; 10.5 lists families as `eq/ne/lt`.
        name = op.name.split(".")[1]
        family = re.sub("_(or|not)$", "_and/or/not", name)
        named = rf"(?<![a-z_])({name}|{family})(?![a-z0-9_])"
        for clause in op.clause.split(", "):
            assert re.search(named, numerics[clause]), (op.name, op.clause)

"""spec/THREATS.md: every promise is there, as in PROTOCOL 7, and the tests that it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
THREATS = (ROOT / "spec" / "THREATS.md").read_text()
PROTOCOL = (ROOT / "spec" / "PROTOCOL.md").read_text()
PROMISES = [f"P{n}" for n in range(1, 12)]
PARTS = ("*Not guaranteed*: ", "*Tests*: ")
_NAMED = re.compile(r"`(tests/[^`]+)`")


def clause(promise: str) -> str:
    """The text of a promise, up to the next clause of its depth or heading."""
    found = re.search(rf"^3\.\d+ \*\*{promise}, .*?(?=^3\.\d+ \*\*|^## )", THREATS, re.M | re.S)
    assert found is not None, promise
    return found[0]


@cache
def functions(path: Path) -> set[str]:
    """Names of the test functions in a file."""
    return {node.name for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)}  # fmt: skip


def is_there(name: str) -> bool:
    """Whether `file`, or `file::test`, is a test of this repository."""
    file, _, test = name.partition("::")
    path = ROOT / file
    return path.is_file() and (not test or test in functions(path))


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_has_its_statement_its_limits_and_its_tests(promise: str) -> None:
    text = clause(promise)
    statement = text.partition("\n")[0]
    assert re.search(r" \*[A-Z].{40,}\*", statement), promise
    assert all(text.count(part) == 1 for part in PARTS)
    assert len(_NAMED.findall(text.partition(PARTS[1])[2])) >= 2


@pytest.mark.parametrize("promise", PROMISES)
def test_the_protocol_says_on_what_a_promise_rests(promise: str) -> None:
    section = PROTOCOL.partition("## 7. ")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith(f"| {promise} |")]
    assert len(rows) == 1 and re.search(r"\d\.\d|§\d", rows[0].split("|")[3]), promise


def test_the_tests_that_are_named_exist() -> None:
    named = _NAMED.findall(THREATS)
    assert len(named) > 40
    assert [name for name in named if not is_there(name)] == []


def test_the_check_of_names_sees_a_wrong_one() -> None:
    assert is_there("tests/unit/test_threats.py::is_there")
    assert not is_there("tests/unit/test_threats.py::test_that_is_not_there")
    assert not is_there("tests/unit/test_no_such_file.py")


def test_clauses_of_the_protocol_that_are_cited_exist() -> None:
    numbers = set(re.findall(r"^(\d+(?:\.\d+)+)[ ]", PROTOCOL, re.M))
    own = set(re.findall(r"^(\d+\.\d+(?:\.\d+)?) ", THREATS, re.M))
    # In brackets: "(PROTOCOL 2.8.1)" and, in a sentence that has named it, "(14.2)".
    cited = {
        n for part in re.findall(r"\(([^()]*)\)", THREATS)
        if not re.search(r"ANSWERS|COMMITMENTS|NUMERICS", part)
        for n in re.findall(r"(?<![\d.§])\d+\.\d+(?:\.\d+)?", part)
    }  # fmt: skip
    assert len(cited) > 30
    assert sorted(cited - numbers - own) == []

"""The README is short, its lines run, and nothing that it names is missing."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tutorials import execute

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
CODE = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


def test_it_has_at_most_900_words() -> None:
    assert len(TEXT.split()) <= 900


def test_its_six_lines_run(tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        _, printed = execute(CODE, "README.md")
    finally:
        os.chdir(here)
    assert [len(code.splitlines()) for code in CODE] == [6]
    assert printed == ["True\n"]


def test_it_names_what_is_there() -> None:
    named = re.findall(r"\]\(([^)#]+)", TEXT)
    assert all((ROOT / name).is_file() for name in named), named
    assert len(re.findall(r"^- \[", TEXT, re.M)) == 6
    made = re.findall(r"^(\w+): [\w -]+$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert {"demo", "test"} <= set(re.findall(r"^make (\S+)", TEXT, re.M)) <= set(made)

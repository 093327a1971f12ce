"""The pages of the documentation outside of docs/tutorials run as they are written."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tutorials import PAGES, blocks, execute, form, packages

from tallystick.cli.main import run as command

Ran = tuple[str, dict[str, Any], list[str], Path]


@pytest.fixture(scope="module", params=["START.md", "QUESTIONS.md"])
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """A page, run from top to bottom in a directory of its own."""
    page = f"../{request.param}"
    for package in packages(page):
        pytest.importorskip(package, reason=f"{page} needs {package}, which is not installed")
    here, there = Path.cwd(), tmp_path_factory.mktemp("page")
    os.chdir(there)
    try:
        yield request.param, *execute([block.code for block in blocks(page)], page), there
    finally:
        os.chdir(here)


def test_the_page_shows_what_is_printed(ran: Ran) -> None:
    page, _, printed, _ = ran
    for block, output in zip(blocks(f"../{page}"), printed, strict=True):
        assert form(block.shown or "") == form(output)
    assert not any("False" in text.split("\n")[0] for text in printed)


def test_the_bits_are_those_of_the_page(ran: Ran) -> None:
    """What draws and computes inside of `reproducible` alone, on whatever machine this is."""
    page, _, printed, _ = ran
    if page == "QUESTIONS.md":
        shown = [block.shown or "" for block in blocks("../QUESTIONS.md")]
        assert printed[1:3] == shown[1:3] and printed[4] == shown[4]


def test_its_command_lines_do_what_it_says(ran: Ran) -> None:
    """The blocks marked `sh`, after the Python above them."""
    page, _, _, there = ran
    text = (PAGES.parent / page).read_text("utf-8")
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S):
        lines = [shlex.split(line)[1:] for line in block.strip().split("\n")]
        codes = [command(words) for words in lines]
        assert codes == [1 if words[0] in ("dispute", "judge") else 0 for words in lines]
        assert (there / "evidence").is_file()


def test_every_question_names_a_thread_and_has_lines_to_run() -> None:
    text = (PAGES.parent / "QUESTIONS.md").read_text("utf-8")
    sections = re.split(r"^## \d+\. ", text, flags=re.M)[1:]
    assert len(sections) == 15
    for section in sections:
        assert "https://github.com/" in section and "```python" in section, section[:40]

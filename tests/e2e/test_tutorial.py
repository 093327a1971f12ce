"""The tutorials run as they are written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tutorials import PAGES, blocks, execute, form, packages, until_named

import tallystick

EVERY = sorted(p.name for p in PAGES.glob("*.md"))
Ran = tuple[str, dict[str, Any], list[str]]


@pytest.fixture(scope="module", params=EVERY)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """A page, run from top to bottom in a directory of its own: its names, and what it printed."""
    page: str = request.param
    for package in packages(page):
        pytest.importorskip(package, reason=f"{page} needs {package}, which is not installed")
    here = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("tutorial"))
    try:
        yield page, *execute([block.code for block in blocks(page)], page)
    finally:
        os.chdir(here)


def test_every_block_runs(ran: Ran) -> None:
    page, names, printed = ran
    assert "audit: match\n" in "".join(printed)
    if page == "own-model.md":
        assert any("refused: " in text and "aten.i0" in text for text in printed)
    if page == "answers.md":
        honest, lie = tallystick.check("answer", "model"), tallystick.check("lie", "model")
        assert honest.accepted and not lie.accepted and lie.difference is not None
        judged = tallystick.judge("evidence", "mine/job")
        assert [one.party for one in judged.verdict.convicted] == [1]
        assert lie.receipt.signer == names["key"].public
        assert judged.signers[1] == names["key"].public.key_id


def test_the_page_shows_what_is_printed(ran: Ran) -> None:
    """All but numbers and digests, which are those of one machine (tests/e2e/tutorials.py)."""
    page, _, printed = ran
    for block, output in zip(blocks(page), printed, strict=True):
        assert form(block.shown or "") == form(output)


def test_the_digest_is_the_same_every_time(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are seeded too, not the data alone. Whoever follows the page gets one job, or
    one model: the job of an answer has the client's secret in it."""
    page, names, printed = ran
    of_models = page in ("answers.md", "server.md")
    named, shown = ("statement", "model digest  ") if of_models else ("job", "job ")
    monkeypatch.chdir(tmp_path)
    again, _ = execute(until_named(page), page)
    assert again[named].digest == names[named].digest
    assert f"{shown}{names[named].digest.hex()}" in "".join(printed)


def test_the_first_page_of_the_documentation_names_every_tutorial() -> None:
    text = (PAGES.parent / "index.md").read_text("utf-8")
    assert all(f"(tutorials/{page})" in text for page in EVERY)

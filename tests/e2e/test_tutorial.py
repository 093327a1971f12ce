"""The tutorials run as they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


@pytest.mark.parametrize("page", sorted(p.name for p in TUTORIALS.glob("*.md")))
def test_every_block_runs(page, tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", (TUTORIALS / page).read_text(), re.M | re.S)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": "tutorial"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    printed = capsys.readouterr().out
    assert "audit: match" in printed
    assert "refused: " in printed and "aten.i0" in printed


def test_the_job_has_the_same_digest_every_time(tmp_path, monkeypatch):
    """The weights are seeded too, not the data alone. Whoever follows the page gets one job."""
    text = (TUTORIALS / "own-model.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    saves = next(i for i, block in enumerate(blocks) if "save_job" in block)
    blocks[saves] = blocks[saves].split("run = ")[0]
    digests = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        names: dict = {"__name__": "tutorial"}
        for block in blocks[: saves + 1]:
            exec(compile(block, "own-model.md", "exec"), names)
        digests.add(names["job"].digest)
    assert len(digests) == 1

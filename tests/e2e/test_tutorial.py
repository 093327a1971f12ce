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
    assert "refused: " in printed and "softplus" in printed

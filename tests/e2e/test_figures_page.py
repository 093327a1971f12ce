"""docs/FIGURES.md is what benchmarks/figures_page.py writes from benchmarks/results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import figures_page

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def test_the_page_is_written_from_the_results() -> None:
    """Else run `python benchmarks/figures_page.py`."""
    assert (ROOT / "docs" / "FIGURES.md").read_text("utf-8") == figures_page.page(RESULTS)


def test_a_number_without_a_raw_result_is_refused(tmp_path: Path) -> None:
    for source in RESULTS.rglob("*.json"):
        copy = tmp_path / source.relative_to(RESULTS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    row = {"measurement": "m", "figure": "{coverage/nothing}", "command": "c"}
    made = {"groups": [{"title": "t", "rows": [row]}]}
    (tmp_path / "figures.json").write_text(json.dumps(made), "utf-8")
    with pytest.raises(KeyError, match="coverage/nothing"):
        figures_page.page(tmp_path)

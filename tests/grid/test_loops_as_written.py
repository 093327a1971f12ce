"""The grid of loops: none is signed otherwise than it is written (tests/grid/README.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from grid.case import cases
from grid.measure import measured

OUTCOMES: dict[str, str] = json.loads((Path(__file__).parent / "outcomes.json").read_text())
# Of the sample below those that take longest; their faces have other cases in it.
DEAR = {
    "capture-nanogpt",
    "fit-progressive-resizing",
    "fit_forecast_horizon",
    "trainer-bert-mean-teacher-callback",
    "trainer-gpt2-smoothing-remainder",
}


def test_every_case_has_an_outcome() -> None:
    assert set(cases()) <= set(OUTCOMES)
    assert set(OUTCOMES) >= DEAR


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long) if n in DEAR else n for n in sorted(OUTCOMES)],
)
def test_a_loop_trains_as_written_or_is_refused_by_name(name: str, tmp_path: Path) -> None:
    if name not in cases():
        pytest.skip("a library of this loop is not installed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = measured(cases()[name], tmp_path / "out")
    finally:
        torch.set_num_threads(threads)
    assert found.outcome == OUTCOMES[name], found

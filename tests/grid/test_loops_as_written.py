"""The grid of loops: none is signed otherwise than it is written (tests/grid/README.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from grid.case import cases
from grid.measure import measured

OUTCOMES: dict[str, str] = json.loads((Path(__file__).parent / "outcomes.json").read_text())


def test_every_case_has_an_outcome() -> None:
    assert set(cases()) <= set(OUTCOMES)


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", sorted(OUTCOMES))
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

"""A short run of many_entries.py: honest doubtful elements unblamed, forged entries found."""

from __future__ import annotations

import pytest
from adversary.many_entries import run


@pytest.mark.parametrize("seed", [1, 2])
def test_some_hundred_doubtful_elements(seed: int) -> None:
    seen = run(120, seed)
    assert seen["doubtful"] == 120 and seen["honest elements"] > 120
    assert seen["two honest values"] > 5 and seen["more than two values"] > 5
    for kind in ("another value", "forged entry added", "forged entry followed"):
        assert seen[f"{kind}: convicted"] > 20

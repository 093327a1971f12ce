"""The package and the judge from the text alone come to the same end (PROTOCOL 8.2).

A sample of the games of `two_judges.py`, whose figures are in docs/proofs/games.md.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from adversary.games import make_job
from adversary.two_judges import disagreements


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1;b=27"])
def test_both_judges_agree(contract: str, tmp_path: Path) -> None:
    ends: Counter[str] = Counter()
    job = make_job(tmp_path / "job", contract)
    assert not [*disagreements(job, 30, 8, random.Random(11), ends)]
    assert len(ends) > 4, "games that end in several ways"

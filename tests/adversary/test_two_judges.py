"""The package and the judge from the text alone come to the same end (PROTOCOL 8.2).

A sample of the games of `two_judges.py`, whose figures are in docs/proofs/games.md.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from adversary.games import make_job
from adversary.two_judges import (
    WIDE,
    disagreements,
    format_two,
    format_two_pairs,
    log_pairs,
    plain_pairs,
)
from unit.protocol.log_simulator import make_log_job


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1;b=27", "exact/1;b=8"])
def test_both_judges_agree(contract: str, tmp_path: Path) -> None:
    ends, rng = Counter[str](), random.Random(11)
    job = make_job(tmp_path / "job", contract)
    assert not [*disagreements(job, 20, plain_pairs(job, 5, rng), rng, ends)]
    assert len(ends) > 3, "games that end in several ways"


@pytest.mark.parametrize("form", ["bounded", "published"])
def test_both_judges_agree_about_logs(form: str, tmp_path: Path) -> None:
    ends, rng = Counter[str](), random.Random(12)
    job = make_log_job(tmp_path / "job", form=form, wide=WIDE[form])
    assert not [*disagreements(job, 20, log_pairs(job, form, 3, rng), rng, ends)]
    assert len(ends) > 3, "games that end in several ways"


@pytest.mark.parametrize("which", [0, 1], ids=["validation", "micro-batches"])
@pytest.mark.parametrize("contract", ["ordered/1", "exact/1;b=15"])
def test_both_judges_agree_about_format_two(which: int, contract: str, tmp_path: Path) -> None:
    ends, rng = Counter[str](), random.Random(13)
    job = format_two(tmp_path, contract)[which]
    pairs = format_two_pairs(job, 10, rng)
    assert not [*disagreements(job, 40, pairs, rng, ends)]
    assert len(ends) > 3, "games that end in several ways"

"""The package and the judge from the text alone come to the same end (PROTOCOL 8.2).

A sample of the games of `two_judges.py`, whose figures are in docs/proofs/games.md.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from adversary.games import Answers, make_job
from adversary.lies import KINDS, Ground
from adversary.two_judges import (
    WIDE,
    disagreements,
    format_two,
    format_two_pairs,
    log_pairs,
    package,
    plain_pairs,
    text,
)
from format_two import make_micro_job
from unit.protocol.log_simulator import make_log_job
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

from tallystick.commit.records import is_long
from tallystick.prover.local import play


def games(is_exhaustive: bool) -> int:
    """How many are played, and judged by both."""
    return 40 if is_exhaustive else 12


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1;b=27", "exact/1;b=8"])
def test_both_judges_agree(contract: str, tmp_path: Path, is_exhaustive: bool) -> None:
    ends, rng = Counter[str](), random.Random(11)
    job = make_job(tmp_path / "job", contract)
    assert not [*disagreements(job, games(is_exhaustive), plain_pairs(job, 5, rng), rng, ends)]
    assert len(ends) > 3, "games that end in several ways"


@pytest.mark.parametrize("form", ["bounded", "published"])
def test_both_judges_agree_about_logs(form: str, tmp_path: Path, is_exhaustive: bool) -> None:
    ends, rng = Counter[str](), random.Random(12)
    job = make_log_job(tmp_path / "job", form=form, wide=WIDE[form])
    assert not [*disagreements(job, games(is_exhaustive), log_pairs(job, form, 3, rng), rng, ends)]
    assert len(ends) > 3, "games that end in several ways"


@pytest.mark.parametrize("which", [0, 1], ids=["validation", "micro-batches"])
@pytest.mark.parametrize(
    "contract", ["ordered/1", pytest.param("exact/1;b=15", marks=pytest.mark.long)]
)
def test_both_judges_agree_about_format_two(
    which: int, contract: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    ends, rng = Counter[str](), random.Random(13)
    job = format_two(tmp_path, contract)[which]
    pairs = format_two_pairs(job, 10, rng, None if is_exhaustive else games(is_exhaustive))
    assert not [*disagreements(job, games(is_exhaustive), pairs, rng, ends)]
    assert len(ends) > 3, "games that end in several ways"


def test_both_judges_agree_about_parts_of_long_records(tmp_path: Path) -> None:
    """COMMITMENTS 8.6: another value in the batch, and each way to show its record wrongly."""
    job = make_micro_job(tmp_path / "job", rows=1, steps=1, width=(1 << 18) + 5, records=3)
    assert is_long(job.schema)
    honest = Answers(Party(job))
    ground = Ground(job, 1, (0,))
    ends = set()
    for told in KINDS["parts"](ground):
        cheat = Answers(Party(job, Lie(**told.hooks)))
        for seat, players in enumerate(([cheat, honest], [honest, cheat])):
            evidence = play(job.terms, players).evidence.to_bytes()
            found = package(job, evidence)
            assert found == text(job, evidence)
            assert found[1][0][0] == "AB"[seat] and len(found[1]) == 1, told.name
            ends.add(found[1][0][1])
    assert ends == {"2.7", "5.6.3", "5.6.6"}

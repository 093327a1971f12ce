"""The package and the text's own reader say the same of a referee's log (PROTOCOL 10 to 12).

A sample of `two_sessions.py`, whose figures are in docs/proofs/games.md.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from adversary.session_logs import random_log
from adversary.two_sessions import disagreements, log_runs, make_job, package, runs, runs_two, text
from unit.protocol.log_simulator import make_log_job
from unit.protocol.validated import make_validated_job


def test_both_read_every_log_alike(tmp_path: Path) -> None:
    ends = Counter[str]()
    job = make_job(tmp_path / "job")
    assert not [*disagreements(job, runs(job), 4, 8, 3, ends)]
    said = {end.rsplit(": ", 1)[-1] for end in ends}
    assert {"convicted", "damaged", "ended"} <= said, "logs of every kind"


def test_both_read_logs_about_a_job_of_format_2_alike(tmp_path: Path) -> None:
    """COMMITMENTS 7.6: games about a pass, a decision, an end by a slot."""
    ends = Counter[str]()
    job = make_validated_job(tmp_path / "job")
    assert not [*disagreements(job, runs_two(job), 4, 5, 5, ends)]
    said = {end.rsplit(": ", 1)[-1] for end in ends}
    assert {"convicted", "damaged", "ended"} <= said, "logs of every kind"


def test_both_read_a_log_of_an_undecided_game_alike(tmp_path: Path) -> None:
    """1.5.1, 10.5.2: two honest runs that followed different logs."""
    job = make_log_job(tmp_path / "job")
    parties = log_runs(job, lies=0)
    for seed in range(3):
        log = random_log(job, parties, random.Random(seed), ("honest",))
        ends = package(job, log), text(job, log)
        assert ends[0] == ends[1]
        if ends[0]["games"]:
            break
    assert ends[0]["games"][0][2:] == (1, 0) and ends[0]["result"][0] == 4
    assert ends[0]["removed"] == {}

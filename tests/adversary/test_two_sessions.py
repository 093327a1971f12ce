"""The package and the text's own reader say the same of a referee's log (PROTOCOL 10 to 12).

A sample of `two_sessions.py`, whose figures are in docs/proofs/games.md.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from adversary.two_sessions import disagreements, make_job, runs


def test_both_read_every_log_alike(tmp_path: Path) -> None:
    ends = Counter[str]()
    job = make_job(tmp_path / "job")
    assert not [*disagreements(job, runs(job), 5, 14, 3, ends)]
    said = {end.rsplit(": ", 1)[-1] for end in ends}
    assert {"convicted", "damaged", "ended"} <= said, "logs of every kind"

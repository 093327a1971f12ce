"""Games about jobs of format 2: several programs, held-out records, a stop by a slot."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.protocol.scenarios import liar
from unit.protocol.simulator import Party
from unit.protocol.validated import CYCLE, lies, make_validated_job

from tallystick.job.job import Job
from tallystick.protocol.judge import judge
from tallystick.prover.local import play


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_validated_job(tmp_path_factory.mktemp("validated") / "job")


@pytest.fixture(scope="module")
def honest(job: Job) -> Party:
    return Party(job)


def test_the_run_stops_by_its_slot(job: Job, honest: Party) -> None:
    """COMMITMENTS 7.6.7: after a decision, neither at the first pass nor at the job's end."""
    assert CYCLE < honest.run.final_step < job.steps
    assert honest.run.final_step % CYCLE == 0


@pytest.mark.parametrize("name", lies())
def test_every_lie_is_convicted(job: Job, honest: Party, name: str) -> None:
    scenario = lies()[name]
    cheat = liar(job, scenario)
    for seat in (0,) if scenario.zero_only else (0, 1):
        players = [cheat, honest] if seat == 0 else [honest, cheat]
        played = play(job.terms, players)
        verdict = played.verdict
        assert [c.party for c in verdict.convicted] == [seat], verdict
        assert verdict.accepted == 1 - seat
        assert (verdict.convicted[0].clause, verdict.case) == (scenario.clause, scenario.case)
        assert judge(job.terms, played.evidence.to_bytes()).verdict == verdict


def test_two_honest_parties_agree(job: Job, honest: Party) -> None:
    played = play(job.terms, [honest, Party(job)])
    assert not played.verdict.convicted


def test_without_patience_the_run_goes_to_its_end(tmp_path: Path) -> None:
    job = make_validated_job(tmp_path / "job", None)
    assert Party(job).run.final_step == job.steps == 4 * CYCLE

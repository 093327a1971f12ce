"""What people read of a session with one party alone: no claim is accepted, and why (10.6.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.delegation.players import REFEREE, Player, Silent, Time, play, rules
from unit.protocol.simulator import Party
from unit.report.pages import Page

from tallystick.cli.main import run
from tallystick.cli.sessions import say_session, session_json
from tallystick.commit.encoding import sha256
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import ALONE
from tallystick.delegation.outcome import claim_digest
from tallystick.delegation.session import Session
from tallystick.delegation.watch import outcome_of
from tallystick.disk.entry_log import EntryLogWriter
from tallystick.job.job import Job

WHY = "One party alone has opened; its claim was compared with nothing, and none is accepted."


@pytest.fixture
def ended(game_job: Job, honest: Party, lies: list[Party], tmp_path: Path) -> Session:
    """A session in which only the liar opened; its log is in OUT."""
    players = [Silent(honest, 11, since=1), Player(lies[1], 12)]
    time = Time()
    with EntryLogWriter(tmp_path / "OUT") as log:
        arbiter = Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
        play(arbiter, players, time)
    assert arbiter.session.result is not None and arbiter.session.result.outcome == ALONE
    return arbiter.session


def test_the_log_and_the_outcome_name_the_claim(ended: Session) -> None:
    """Kind 12 (12.2) and the outcome of 14.6, on which offers with one provider rest."""
    ((member,),) = ended.sides
    assert ended.result is not None
    assert ended.result.accepted == sha256(member.commitment)
    assert outcome_of(ended).accepted == claim_digest(member.run)


def test_the_referees_words(
    ended: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = session_json(ended, [])
    assert (found["outcome"], found["accepted"]) == ("one party alone", None)
    assert found["final_state_root"] is None and found["why"] == WHY
    say_session(ended, [], tmp_path / "OUT")
    said = capsys.readouterr().out
    assert f"RESULT      one party alone: {WHY}" in said and "ACCEPTED" not in said


def test_inspect(ended: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(tmp_path / "OUT"), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["result"] == {
        "outcome": "one party alone", "run_root": None, "signer": None, "why": WHY,
    }  # fmt: skip
    assert run(["inspect", str(tmp_path / "OUT")]) == 0
    said = capsys.readouterr().out
    assert f"RESULT      one party alone: {WHY}" in said and "ACCEPTED" not in said
    ((member,),) = ended.sides
    assert member.run.run_root.hex()[:16] in said  # the claim itself is still shown


def test_the_page(ended: Session, game_job: Job, tmp_path: Path) -> None:
    page = tmp_path / "session.html"
    job = str(game_job.directory)
    assert run(["report", str(tmp_path / "OUT"), "--job", job, "-o", str(page)]) == 0
    assert WHY in Page(page.read_text("utf-8")).text


def test_a_claim_that_others_have_signed_is_accepted(
    game_job: Job, honest: Party, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    players = [Player(honest, 11), Player(honest, 12)]
    time = Time()
    arbiter = Arbiter(game_job.terms, REFEREE, [], time, rules(game_job, players))
    play(arbiter, players, time)
    found = session_json(arbiter.session, [])
    assert found["accepted"] == honest.run.run_root and found["why"] is None
    say_session(arbiter.session, [], tmp_path)
    assert f"ACCEPTED    run root {honest.run.run_root.hex()}" in capsys.readouterr().out

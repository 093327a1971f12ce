"""A session as a page: what a reader sees follows from the log alone (docs/REPORT.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.delegation.players import REFEREE, Player, Silent, Time, play, rules
from unit.protocol.simulator import Party
from unit.report.pages import Page

from tallystick.cli.main import run
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import Entry, Resumed, open_entry, sign_entry
from tallystick.delegation.session import Session
from tallystick.delegation.watch import replayed
from tallystick.disk.entry_log import EntryLogWriter
from tallystick.job.job import Job
from tallystick.report.session_page import session_headline, session_page


def played(job: Job, players: list[Player]) -> Session:
    log: list[bytes] = []
    time = Time()
    arbiter = Arbiter(job.terms, REFEREE, log, time, rules(job, players))
    play(arbiter, players, time)
    return replayed(job.terms, log)


def test_a_contested_session(game_job: Job, honest: Party, lies: list[Party]) -> None:
    players = [Player(honest, 11), Player(honest, 12), Player(lies[1], 13), Player(lies[2], 14),
               Silent(lies[3], 15, since=3, words=1), Silent(honest, 16, since=2)]  # fmt: skip
    session = played(game_job, players)
    page = Page(session_page(session, "OUT"))
    assert "One claim is accepted" in page.text and page.labels
    for player in players:
        assert player.key.public.key_id[:12] in page.text
    for word in ("✓ remains", "✗ shown false", "✗ silent", "✗ did not open its seal",
                 "The referee says that", "clause 2.10"):  # fmt: skip
        assert word in page.text, word
    assert page.seen >= {"caption", "thead", "details"}
    assert session.session.hex() in page.text and game_job.digest.hex() in page.text
    assert "svg" in page.seen and "fsck OUT --job JOB" in page.text


@pytest.mark.parametrize(
    ("who", "sentence"),
    [
        ("agreement", "signed the same claim"),
        ("alone", "compared with nothing"),
        ("none", "every party was removed"),
        ("none sealed", "every party was removed"),
    ],
)
def test_the_sentence_of_each_end(
    game_job: Job, honest: Party, lies: list[Party], who: str, sentence: str
) -> None:
    players: list[Player] = {
        "agreement": [Player(honest, 11), Player(honest, 12)],
        "alone": [Player(honest, 11), Silent(honest, 12, since=1)],
        "none": [Silent(honest, 11, since=3), Silent(lies[0], 12, since=3)],
        "none sealed": [Silent(honest, 11, since=1), Silent(lies[0], 12, since=1)],
    }[who]
    session = played(game_job, players)
    assert sentence in session_headline(session)
    assert sentence in Page(session_page(session, "OUT")).text


def test_a_session_that_goes_on(game_job: Job, honest: Party) -> None:
    arbiter = Arbiter(game_job.terms, REFEREE, [], Time(), rules(game_job))
    assert "goes on" in Page(session_page(arbiter.session, "OUT")).text


def test_the_command_plays_the_log_again(
    game_job: Job, honest: Party, lies: list[Party], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """`report DIR --job JOB`: a page of a log that checks out; for another one the reason alone."""
    source, page = tmp_path / "OUT", tmp_path / "session.html"
    players = [Player(honest, 11), Player(lies[1], 12)]
    time = Time()
    with EntryLogWriter(source) as log:
        arbiter = Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
        play(arbiter, players, time)
    command = ["report", str(source), "--job", str(game_job.directory), "-o", str(page)]
    assert run(command) == 0
    assert "One claim is accepted" in capsys.readouterr().out
    assert arbiter.session.session.hex() in Page(page.read_text("utf-8")).text
    entry = next((source / "log").rglob("0000003.bin"))
    entry.write_bytes(entry.read_bytes()[:-1] + b"x")
    assert run(command) == 2
    assert "Nothing is shown" in Page(page.read_text("utf-8")).text


def test_a_referee_that_breaks_its_rules_is_the_one_accused(
    game_job: Job, honest: Party, lies: list[Party], tmp_path: Path
) -> None:
    """PROTOCOL 12.5: the log convicts its referee, and no party."""
    source, page = tmp_path / "OUT", tmp_path / "session.html"
    players, time = [Player(honest, 11), Player(lies[1], 12)], Time()
    with EntryLogWriter(source) as log:
        arbiter = Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
        play(arbiter, players, time)
        index = len(log)
        last = open_entry(log.read(index - 1), REFEREE.public)
        log.append(sign_entry(REFEREE, Entry(index, last.digest(), last.time, Resumed())))
    assert run(["report", str(source), "--job", str(game_job.directory), "-o", str(page)]) == 1
    text = Page(page.read_text("utf-8")).text
    assert "The referee of this session broke its rules" in text
    assert "No party is accused" in text and "Nothing is shown" not in text

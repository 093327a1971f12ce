"""A referee's directory: what fsck and inspect find in it (PROTOCOL 12.5, 12.6)."""

from __future__ import annotations

import json
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from unit.delegation.players import REFEREE, Player, Silent, Time, play, rules
from unit.protocol.simulator import Party

from tallystick.cli.inspect import fsck as fsck_command
from tallystick.cli.inspect import inspect as inspect_command
from tallystick.cli.main import run
from tallystick.cli.output import ExitError
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.account import account
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import GameEnded, Sealed, open_entry, sign_entry
from tallystick.delegation.seals import open_seal
from tallystick.delegation.session import ENDED, LOST, NEVER_OPENED
from tallystick.disk import files
from tallystick.disk.entry_log import EntryLog, EntryLogWriter, entry_name
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.service.archive import ArchiveReport, evidence_name, fsck_archive
from tallystick.service.show import inspect_archive, session_lines


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.OsCalls, "fsync", staticmethod(lambda descriptor: None))


@pytest.fixture(scope="session")
def players(honest: Party, lies: list[Party]) -> list[Player]:
    """An honest party, a cheat, one that falls silent, and one that never opens."""
    return [Player(honest, 11), Player(lies[4], 12), Silent(lies[1], 13, since=3, words=2),
            Silent(honest, 14, since=2)]  # fmt: skip


@pytest.fixture(scope="session")
def kept(
    game_job: Job, players: list[Player], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Arbiter]:
    """A session's directory and the arbiter at its end; copy it before a change."""
    directory, time = tmp_path_factory.mktemp("archive") / "session", Time()
    with EntryLogWriter(directory) as log:
        arbiter = Arbiter(game_job.terms, REFEREE, log, time, rules(game_job, players))
        play(arbiter, players, time)
        for match in arbiter.session.matches:
            (directory / evidence_name(match.number)).write_bytes(match.evidence().to_bytes())
    (directory / "result.json").write_bytes(b"{}\n")
    return directory, arbiter


@pytest.fixture
def archive(kept: tuple[Path, Arbiter], tmp_path: Path) -> Path:
    shutil.copytree(kept[0], tmp_path / "session")
    return tmp_path / "session"


# --- the account (the log as it says) -------------------------------------------------------------
def test_the_account_is_the_sessions(
    kept: tuple[Path, Arbiter], players: list[Player], game_job: Job
) -> None:
    found, session = account(EntryLog(kept[0])), kept[1].session
    assert (found.state, found.session, found.length) == (ENDED, session.session, session.length)
    assert found.result == session.result and found.rules == session.rules
    assert {k: p.removed for k, p in found.parties.items() if p.removed} == session.removed
    assert set(session.removed.values()) == {LOST, NEVER_OPENED}
    assert {k: p.run for k, p in found.parties.items() if p.run} == {
        k: m.run for k, m in session.members.items()
    }
    assert len(found.games) == len(session.matches) >= 2
    assert max(game.round for game in found.games) == session.rounds
    for game, match in zip(found.games, session.matches, strict=True):
        assert game.ending == match.ending and sorted(game.forfeits) == sorted(match.forfeits)
        assert [c.used for c in game.clocks] == [c.used for c in match.clocks]
    assert any(game.forfeits for game in found.games)
    assert any(clock.used for game in found.games for clock in game.clocks)


def test_the_account_refuses_what_is_no_log(kept: tuple[Path, Arbiter]) -> None:
    log = list(EntryLog(kept[0]))
    other = sign_entry(PrivateKey(b"o" * 32), open_entry(log[3], REFEREE.public))
    for bad in (log[1:], [*log[:5], *log[6:]], [*log[:3], other], [b"no entry"], [*log, log[0]]):
        with pytest.raises(CorruptFileError):
            account(bad)


# --- fsck -----------------------------------------------------------------------------------------
def problems(report: ArchiveReport) -> dict[str, str]:
    assert all(p.next_action for p in report.problems)
    return {p.path: p.message for p in report.problems}


def test_an_intact_directory_is_clean(
    archive: Path, game_job: Job, kept: tuple[Path, Arbiter]
) -> None:
    for terms in (None, game_job.terms):
        report = fsck_archive(archive, terms)
        assert report.clean and report.finished, report.problems
        assert report.entries == kept[1].session.length
        assert report.replayed == (terms is not None) and report.deviation is None


@pytest.mark.parametrize("cut", [1, 3, 10, 40])
def test_a_session_that_goes_on_is_clean(cut: int, archive: Path, game_job: Job) -> None:
    for index in range(cut, len(EntryLog(archive))):
        (archive / entry_name(index)).unlink()
    for path in archive.glob("game-*"):
        path.unlink()
    report = fsck_archive(archive, game_job.terms)
    assert report.clean and not report.finished and report.entries == cut, report.problems


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a flipped bit": (lambda d: _flip(d / entry_name(7)), entry_name(7), "signature|malformed"),
    "a hole": (lambda d: (d / entry_name(7)).unlink(), ".", "Entry 7 .* is missing"),
    "another entry": (
        lambda d: shutil.copy(d / entry_name(8), d / entry_name(7)), entry_name(7), "continue"
    ),
    "a long entry": (
        lambda d: (d / entry_name(7)).write_bytes(bytes(10**7)), entry_name(7), "limit"
    ),
    "evidence altered": (lambda d: _flip(d / evidence_name(0)), evidence_name(0), "not the evid"),
    "evidence missing": (lambda d: (d / evidence_name(1)).unlink(), evidence_name(1), "missing"),
    "evidence exchanged": (
        lambda d: shutil.copy(d / evidence_name(0), d / evidence_name(1)), evidence_name(1),
        "not the evid",
    ),
    "evidence of no game": (
        lambda d: shutil.copy(d / evidence_name(0), d / evidence_name(9)), evidence_name(9),
        "does not belong",
    ),
    "a stranger": (lambda d: (d / "notes").write_bytes(b""), "notes", "does not belong"),
    "a stranger in the log": (
        lambda d: (d / "log" / "0000" / "x").write_bytes(b""), "log/0000/x", "no entry"
    ),
    "an interrupted write": (
        lambda d: (d / "next.part").write_bytes(b""), "next.part", "interrupted"
    ),
    "an entry not published": (
        lambda d: (d / "next").write_bytes(b""), "next", "interrupted"
    ),
    "a lock with content": (lambda d: (d / "lock").write_bytes(b"1"), "lock", "not empty"),
    "a result that is a link": (
        lambda d: ((d / "result.json").unlink(), (d / "result.json").symlink_to("/dev/null")),
        "result.json", "link",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(name: str, archive: Path, game_job: Job) -> None:
    damage, path, message = DAMAGES[name]
    damage(archive)
    for terms in (None, game_job.terms):
        report = fsck_archive(archive, terms)
        found = problems(report)
        assert path in found, found
        assert re.search(message, found[path]), found
        assert report.deviation is None  # damage convicts no referee


def test_an_entry_that_is_cut_off_at_the_end(archive: Path) -> None:
    """12.3.1: it was not written; the session has no result then."""
    last = archive / entry_name(len(EntryLog(archive)) - 1)
    last.write_bytes(last.read_bytes()[:-1])
    report = fsck_archive(archive)
    assert not report.finished and "cut off" in problems(report)[str(last.relative_to(archive))]


def test_a_referee_that_deviates_is_named(archive: Path, game_job: Job) -> None:
    """12.5: only with the job; its signatures and links are in order."""
    log = list(EntryLog(archive))
    index = next(
        i for i, m in enumerate(log) if isinstance(open_entry(m, REFEREE.public).event, GameEnded)
    )
    honest = open_entry(log[index], REFEREE.public)
    assert isinstance(honest.event, GameEnded)
    lie = replace(honest, event=replace(honest.event, convicted=3 - honest.event.convicted))
    (archive / entry_name(index)).write_bytes(sign_entry(REFEREE, lie))
    for later in range(index + 1, len(log)):
        (archive / entry_name(later)).unlink()
    for path in archive.glob("game-*"):
        path.unlink()
    assert fsck_archive(archive).clean
    report = fsck_archive(archive, game_job.terms)
    assert report.deviation is not None
    assert (report.deviation.index, report.deviation.clause) == (index, "12.4")
    assert "convicts the referee" in problems(report)[entry_name(index)]


def test_two_copies_of_a_log(archive: Path, game_job: Job, tmp_path: Path) -> None:
    """12.5.1: a referee that shows two people different logs is convicted by both together."""
    copy = tmp_path / "copy"
    shutil.copytree(archive / "log", copy / "log")
    report = fsck_archive(archive, None, copy)
    assert report.clean
    last = len(EntryLog(archive)) - 1
    honest = open_entry(EntryLog(archive).read(last), REFEREE.public)
    other = replace(honest, time=honest.time + 1)
    (copy / entry_name(last)).write_bytes(sign_entry(REFEREE, other))
    for terms in (None, game_job.terms):
        assert fsck_archive(archive, terms).clean and fsck_archive(copy, terms).clean
        report = fsck_archive(archive, terms, copy)
        assert report.deviation is not None
        assert (report.deviation.index, report.deviation.clause) == (last, "12.5.1")
    code, text = called(fsck_command, archive, "--copy", copy, "--json")
    assert code == 1 and json.loads(text)["deviation"]["clause"] == "12.5.1"
    (copy / entry_name(last)).write_bytes(sign_entry(PrivateKey(b"o" * 32), other))
    with pytest.raises(CorruptFileError):
        fsck_archive(archive, None, copy)


def test_strangers_are_bounded(archive: Path) -> None:
    for number in range(150):
        (archive / "log" / f"x{number}").write_bytes(b"")
    report = fsck_archive(archive)
    assert len(report.problems) == 101


def test_a_directory_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no referee's log"):
        fsck_archive(tmp_path)
    with pytest.raises(UsageError, match="no referee's log"):
        inspect_archive(tmp_path)


# --- publication (12.6) ---------------------------------------------------------------------------
class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def static_server(directory: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_any_static_server_publishes_a_log(
    archive: Path, game_job: Job, tmp_path: Path, kept: tuple[Path, Arbiter]
) -> None:
    """docs/INTERFACE.md, A referee's log: fetch by index until there is none, and judge."""
    published, copy = tmp_path / "www", tmp_path / "copy"
    shutil.copytree(archive / "log", published / "log")
    index = 0
    with static_server(published) as url:
        while True:
            try:
                with urllib.request.urlopen(f"{url}/{entry_name(index)}") as reply:
                    data, kind = reply.read(), reply.headers["content-type"]
            except urllib.error.HTTPError as error:
                assert error.code == 404
                break
            assert kind == "application/octet-stream"
            target = copy / entry_name(index)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            index += 1
    assert index == kept[1].session.length
    report = fsck_archive(copy, game_job.terms)
    assert report.clean and report.finished and report.replayed


# --- inspect --------------------------------------------------------------------------------------
def test_inspect_shows_the_session(archive: Path, kept: tuple[Path, Arbiter]) -> None:
    found, session = inspect_archive(archive), kept[1].session
    assert found["session"] == session.session and found["finished"] and not found["damage"]
    assert found["result"]["outcome"] == "accepted"
    assert [game["outcome"] for game in found["games"]] == ["convicted"] * len(session.matches)
    assert len(found["parties"]) == 4 and len(found["sides"]) == 3
    text = "\n".join(session_lines(found))
    assert "1970-01-01 00:00:00.000 UTC" in text and "RESULT      accepted" in text
    assert "by silence" in text and "never opened" in text


def test_inspect_tells_people_what_a_log_proves_and_what_comes_next(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(archive)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("what        a referee's directory") and "RESULT      accepted" in said
    assert "proves      That the referee signed this log." in said
    assert said.endswith(f"next        tallystick fsck {archive} --job JOB\n")


def test_inspect_of_an_entry_and_of_a_seal(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(path: Path) -> dict[str, Any]:
        assert run(["inspect", str(path), "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    session, log = inspect_archive(archive), EntryLog(archive)
    found = told(archive / entry_name(0))
    assert (found["kind"], found["claims"]["event"]) == ("entry", "session begun")
    assert found["claims"]["digest"] == session["session"].hex()
    assert found["claims"]["job_digest"] == session["job_digest"].hex()
    assert found["signed_by"] == [REFEREE.public.key_id]
    found = told(archive / entry_name(1))
    assert (found["claims"]["index"], found["signed_by"]) == (1, [])
    assert found["claims"]["previous"] == session["session"].hex()
    sealed = open_entry(log.read(1), REFEREE.public).event
    assert isinstance(sealed, Sealed) and found["claims"]["event"] == "sealed"
    (tmp_path / "seal").write_bytes(sealed.message)
    found = told(tmp_path / "seal")
    assert (found["kind"], found["claims"]["session"]) == ("seal", session["session"].hex())
    assert found["signed_by"] == [open_seal(sealed.message).key.key_id]
    for path in (archive / entry_name(0), tmp_path / "seal"):
        _flip(path)
        assert run(["inspect", str(path)]) in (1, 2)


def test_inspect_shows_a_damaged_log_as_far_as_it_goes(archive: Path) -> None:
    _flip(archive / entry_name(7))
    found = inspect_archive(archive)
    assert found["entries"] == 7 and found["damage"] and found["result"] is None
    assert list(session_lines(found))
    _flip(archive / entry_name(0))
    with pytest.raises(CorruptFileError):
        inspect_archive(archive)


# --- the commands ---------------------------------------------------------------------------------
def called(command: object, *words: object) -> tuple[int, str]:
    found = CliRunner().invoke(command, [str(word) for word in words])  # type: ignore[arg-type]
    code = found.exception.code if isinstance(found.exception, ExitError) else found.exit_code
    if found.exception is not None and not isinstance(found.exception, (ExitError, SystemExit)):
        raise found.exception
    return code, found.stdout


def test_the_commands(archive: Path, game_job: Job) -> None:
    job = game_job.directory
    code, text = called(fsck_command, archive)
    assert code == 0 and "--job JOB says whether the referee was right" in text
    code, text = called(fsck_command, archive, "--job", job)
    assert code == 0 and "followed the rules" in text
    code, text = called(inspect_command, archive)
    assert code == 0 and "\nsession     " in text
    assert json.loads(called(inspect_command, archive, "--json")[1])["kind"] == "session"
    _flip(archive / entry_name(7))
    code, text = called(fsck_command, archive, "--job", job, "--json")
    found = json.loads(text)
    assert code == 1 and found["deviation"] is None and found["replayed"] is True
    assert found["entries"] == 7 and found["problems"]
    assert called(inspect_command, archive)[0] == 2
    with pytest.raises(UsageError, match="--job and --copy are for"):
        called(fsck_command, job, "--job", job)
    with pytest.raises(UsageError, match="is not a run, a job, a referee"):
        called(inspect_command, archive / "log")

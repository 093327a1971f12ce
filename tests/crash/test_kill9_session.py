"""kill -9 of a referee and of a party at their writes, as processes on a network (P9).

The place of each kill is a write of the process itself, so no test depends on the machine's speed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra [service] is not installed")
pytest.importorskip("uvicorn", reason="the extra [service] is not installed")
pytest.importorskip("httpx2", reason="the extra [service] is not installed")

from service.parties import A, B, Player, Script, cheat, honest, make_job, registered
from service.processes import Served, command, run
from test_crash_session import in_process, public
from unit.protocol.simulator import Party

from tallystick.commit.signing import PrivateKey
from tallystick.delegation.session import LOST
from tallystick.delegation.turns import Message
from tallystick.delegation.watch import contradiction, replayed
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.keys import save_private_key
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.protocol.referee import Referee
from tallystick.run.execute.trainer import Options, train_job

# A process that ends itself by SIGKILL at its `at`-th write, and is `tallystick` otherwise.
DYING = (
    "import sys; sys.path[:0] = sys.argv[1].split(':'); at = int(sys.argv[2])\n"
    "from killing import Killing\n"
    "from tallystick.disk import files\n"
    "files.OS = Killing(at)\n"
    "from tallystick.cli.main import run\n"
    "sys.exit(run(sys.argv[3:]))\n"
)
HERE = Path(__file__).resolve().parent


def dying(at: int, arguments: list[object]) -> list[str]:
    paths = f"{HERE}:{HERE.parent}"
    return [sys.executable, "-c", DYING, paths, str(at), *map(str, arguments)]


# --- a party, at every write ----------------------------------------------------------------------
@pytest.fixture(scope="module")
def small_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("kill9") / "job")


@pytest.fixture(scope="module")
def runs(small_job: Job) -> tuple[Party, Party]:
    return honest(small_job), cheat(small_job)


def replies(
    job: Job, runs: tuple[Party, Party], directory: Path, tell: Callable[[bytes], object]
) -> None:
    """A party seals, opens and answers its first query; it tells each message that it signs."""
    player, other = Player(runs[0], A), Player(runs[1], B)
    script, party = Script(job), registered(player, directory)

    def said(turn: bytes) -> bytes:
        reply = party.reply(turn, 60.0)
        assert isinstance(reply, Message), reply
        tell(reply.data)
        return reply.data

    seal = said(script.begin())
    said(script.opening(seal))
    pair = (player.commitment, other.commitment)
    said(script.play(Referee(job.terms, pair, 4), 0, pair))
    party.close()


def test_a_party_that_is_killed_at_any_write_signs_nothing_else(
    small_job: Job, runs: tuple[Party, Party], tmp_path: Path
) -> None:
    """13.4, 10.2.1: a second, different seal or opening would exclude it."""
    truth: list[bytes] = []
    replies(small_job, runs, tmp_path / "whole", truth.append)
    assert len(truth) == 3
    at, ended = 0, False
    while not ended:
        at += 1
        directory, told = tmp_path / f"at-{at}", tmp_path / f"told-{at}"

        def tell(message: bytes, told: Path = told) -> None:
            with told.open("ab") as file:
                file.write(len(message).to_bytes(8, "little") + message)

        def life(directory: Path = directory, tell: Callable[[bytes], None] = tell) -> None:
            replies(small_job, runs, directory, tell)

        ended = in_process(at, life)
        said = list(_messages(told.read_bytes() if told.exists() else b""))
        assert said == truth[: len(said)]
        again: list[bytes] = []
        replies(small_job, runs, directory, again.append)
        assert again == truth
    assert at > 8  # four writes for the seal, four for the opening


def _messages(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[:8], "little")
        yield data[8 : 8 + size]
        data = data[8 + size :]


# --- a whole session over HTTP --------------------------------------------------------------------
FAST = ("--sealing", "300s", "--opening", "300s", "--budget", "300s", "--extension", "60s")


class Stage:
    """An honest run and a cheating one, served; a referee's key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        pairs = {"features": "24", "classes": "2", "records": "16", "batch_size": "2"}
        self.job = new_job(
            "logreg", path / "job", pairs, steps=9, checkpoint_interval=4, evaluate_every=0
        )
        for name in ("honest", "referee"):
            key = PrivateKey.generate()
            save_private_key(key, path / f"{name}.key")
            (path / f"{name}.pub").write_bytes(key.public.pem())
            if name == "honest":
                train_job(self.job, path / name, Options(key=key))
        done = run("attack", "lie-output", path / "job", "--out", path / "cheat")
        assert done.returncode == 0, done.stderr

    def serving(self, name: str, listen: str) -> list[object]:
        own = ("--as-attack",) if name == "cheat" else ("--key", self.path / "honest.key")
        believed = ("--referee", self.path / "referee.pub")
        return [self.path / name, "--listen", listen, *believed, *own]

    def referee(self, out: Path, *urls: str) -> list[object]:
        parties = [part for url in urls for part in ("--party", url)]
        key = ("--key", self.path / "referee.key")
        return ["referee", self.path / "job", *parties, "--out", out, *key, *FAST]


def test_kill_9_of_referee_and_party_over_http(tmp_path: Path, is_exhaustive: bool) -> None:
    """Each referee lives for some writes, each honest party for some; the same commands go on."""
    if not is_exhaustive:
        pytest.skip("it takes a minute; tests/service kills each process one time")
    stage, out = Stage(tmp_path), tmp_path / "out"
    seen: list[list[bytes]] = []
    lives, party_lives, at = 0, 0, 1
    with ExitStack() as stack:
        liar = Served(*stage.serving("cheat", "127.0.0.1:0"))
        stack.callback(liar.stop)
        first = Served(*stage.serving("honest", "127.0.0.1:0"))
        first.stop(9)
        place = f"127.0.0.1:{first.port}"
        party: subprocess.Popen[str] | None = None

        def end() -> None:
            if party is not None:
                party.kill()
                party.communicate()

        stack.callback(end)
        arguments = stage.referee(out, first.url, liar.url)
        while True:
            if party is None or party.poll() is not None:
                if party is not None:
                    party.communicate()
                words = ["serve", *stage.serving("honest", place)]
                life = dying(at, words) if at < 9 else command(*words)
                party, party_lives = _spawned(life), party_lives + 1
                at += 1
            referee = _spawned(dying(12 + 7 * lives, arguments))
            _until_one_ends(referee, party)
            if referee.poll() is None:  # the party has died: the referee waits for it
                referee.kill()
            _, errors = referee.communicate()
            lives += 1
            if referee.returncode != -9:
                break
            seen.append(public(out))
        assert referee.returncode == 1, errors
    log = list(EntryLog(out))
    for before in seen:
        assert log[: len(before)] == before and contradiction(before, log) is None
    session = replayed(stage.job.terms, log)
    assert list(session.removed.values()) == [LOST] and session.result is not None
    assert lives > 5 and party_lives > 8
    done = run("fsck", out, "--job", stage.path / "job")
    assert done.returncode == 0, done.stdout


def _spawned(words: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def _until_one_ends(*processes: subprocess.Popen[str]) -> None:
    from service.transports import until

    until(lambda: any(process.poll() is not None for process in processes), 240)

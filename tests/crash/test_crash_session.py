"""A referee that crashes anywhere goes on from its log as if it had not (P9, PROTOCOL 12.3).

Default: a fixed sample of places. `--exhaustive`: every call and every byte; figures are in
docs/proofs/session-crashes.md.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from faults import KilledError
from killing import Killing
from test_crash_entry_log import FaultsAtAByte
from unit.delegation.players import REFEREE, Player, Time, play, rules
from unit.protocol.scenarios import SCENARIOS, liar
from unit.protocol.simulator import Party

from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.entries import Asked, open_entry
from tallystick.delegation.rules import Rules
from tallystick.delegation.session import Session
from tallystick.delegation.turns import Play, Turn
from tallystick.delegation.watch import contradiction, replayed
from tallystick.disk import files
from tallystick.disk.entry_log import NEXT, EntryLog, EntryLogWriter
from tallystick.errors import StorageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.protocol.queries import Checkpoints, decode_query

PAIRS = {"features": "700", "classes": "2", "records": "16", "batch_size": "2", "lr": "0.0001"}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = tmp_path_factory.mktemp("crash-session") / "job"
    return new_job("logreg", path, PAIRS, steps=13, checkpoint_interval=4, evaluate_every=0)


class Asking(Player):
    """A player that keeps the queries it was asked."""

    def __init__(self, party: Party, seed: int) -> None:
        super().__init__(party, seed)
        self.queries: set[tuple[int, int, bytes]] = set()

    def replies(self, turn: Turn) -> list[bytes]:
        if isinstance(turn.request, Play) and turn.request.query:
            self.queries.add((turn.request.game, turn.request.party, turn.request.query))
        return super().replies(turn)


class Mute(Asking):
    """A player that answers the first kind of query only, as often as it is asked."""

    def replies(self, turn: Turn) -> list[bytes]:
        asked = turn.request.query if isinstance(turn.request, Play) else b""
        mute = bool(asked) and not isinstance(decode_query(asked), Checkpoints)
        return [] if mute else super().replies(turn)


class World:
    """Parties, one of them a cheat, and the session that no crash disturbs."""

    def __init__(self, job: Job, parties: list[tuple[Party, bool]]) -> None:
        self.job, self._parties = job, parties
        self.rules: Rules = rules(job, self.players())
        self.whole: list[bytes] = []
        time = Time()
        arbiter = Arbiter(job.terms, REFEREE, self.whole, time, self.rules)
        play(arbiter, self.players(), time)
        self.end = arbiter.session
        assert len(self.end.matches) == len(parties) - 1 and len(self.whole) > 30

    def players(self) -> list[Asking]:
        return [
            Mute(party, 11 + i) if silent else Asking(party, 11 + i)
            for i, (party, silent) in enumerate(self._parties)
        ]

    def hold(self, directory: Path, players: list[Asking], time: Time) -> None:
        """What a referee's process does: it goes on from the log, to the end."""
        with EntryLogWriter(directory) as log:
            arbiter = Arbiter(self.job.terms, REFEREE, log, time, self.rules)
            play(arbiter, players, time)

    def check(self, directory: Path, players: list[Asking], seen: list[list[bytes]]) -> None:
        """The session on disk ended as the undisturbed one. `seen` are logs of any moment."""
        log = list(EntryLog(directory))
        session = replayed(self.job.terms, log)
        assert ending(session) == ending(self.end)
        for before in seen:
            assert log[: len(before)] == before  # what was public stays
            assert contradiction(before, log) is None
        events = (open_entry(message, REFEREE.public).event for message in log)
        asked = {(e.game, e.party, e.message) for e in events if isinstance(e, Asked)}
        for player in players:
            assert player.queries <= asked  # no query was put that the log does not have


def ending(session: Session) -> object:
    """All but the times: the result, the removed keys, each game's evidence."""
    return session.result, session.removed, [match.evidence() for match in session.matches]


@pytest.fixture(scope="module", params=[2, 3])
def world(request: pytest.FixtureRequest, job: Job) -> World:
    honest, cheat = Party(job), liar(job, SCENARIOS["a wrong product"])
    third = liar(job, SCENARIOS["another batch"])
    return World(job, [(honest, False), (cheat, False), (third, True)][: request.param])


@contextmanager
def door(installed: files.OsCalls) -> Iterator[None]:
    before = files.OS
    files.OS = installed  # type: ignore[misc]
    try:
        yield
    finally:
        files.OS = before  # type: ignore[misc]


def public(directory: Path) -> list[bytes]:
    """What anyone can read now."""
    return list(EntryLog(directory)) if (directory / "log").is_dir() else []


def test_a_crash_at_every_call(world: World, tmp_path: Path, is_exhaustive: bool) -> None:
    counted = FaultsAtAByte(0, "kill")
    with door(counted):
        world.hold(tmp_path / "counted", world.players(), Time())
    assert counted.calls > 6 * len(world.whole)
    places = range(1, counted.calls + 1, 1 if is_exhaustive else counted.calls // 6)
    for at in places:
        directory, players, time = tmp_path / f"at-{at}", world.players(), Time()
        faults = FaultsAtAByte(at, random.Random(at).choice(["kill", "full"]))
        faults.part = at % 500
        with suppress(KilledError, StorageError), door(faults):
            world.hold(directory, players, time)
        assert faults.tripped
        seen = public(directory)
        with door(FaultsAtAByte(0, "kill")):
            world.hold(directory, players, time)
        world.check(directory, players, [seen])


def test_a_crash_at_every_byte(world: World, tmp_path: Path, is_exhaustive: bool) -> None:
    """Whatever part of an entry was written, the next referee has the entries before it."""
    directory = tmp_path / "session"
    with door(FaultsAtAByte(0, "kill")):
        for index, entry in enumerate(world.whole):
            whole = is_exhaustive or index % 16 == 0
            for part in range(0, len(entry) + 1, 1 if is_exhaustive else 101) if whole else ():
                (directory / "log").mkdir(parents=True, exist_ok=True)
                (directory / (NEXT + ".part")).write_bytes(entry[:part])
                assert opened(directory) == world.whole[:index]
                (directory / NEXT).write_bytes(entry[:part])  # on a disk that loses ends of files
                got = opened(directory)
                assert got == world.whole[: index + (part == len(entry))]
                if len(got) > index:
                    EntryLog(directory).path(index).unlink()
                torn = directory / "log" / f"{index // 1000:04d}" / f"{index:07d}.bin"
                torn.parent.mkdir(exist_ok=True)
                torn.write_bytes(entry[:part])
                assert opened(directory) == world.whole[: index + (part == len(entry))]
                torn.unlink(missing_ok=True)
            with EntryLogWriter(directory) as log:
                log.append(entry)
    assert public(directory) == world.whole


def opened(directory: Path) -> list[bytes]:
    with EntryLogWriter(directory) as log:
        return list(log)


def test_many_crashes_of_one_session(world: World, tmp_path: Path, is_exhaustive: bool) -> None:
    """At random calls, while it takes up its log again too; time goes on meanwhile."""
    for seed in range(200 if is_exhaustive else 4):
        rng = random.Random(seed)
        directory, players, time = tmp_path / f"seed-{seed}", world.players(), Time()
        seen: list[list[bytes]] = []
        for _ in range(rng.randint(2, 12)):
            faults = FaultsAtAByte(rng.randint(1, 90), rng.choice(["kill", "full"]))
            faults.part = rng.randint(0, 300)
            with suppress(KilledError, StorageError), door(faults):
                world.hold(directory, players, time)
            seen.append(public(directory))
            if seen[-1]:  # before entry 0 the deadline for seals is not the session's yet
                time.now += rng.choice([0, 1, 10**7])
        with door(FaultsAtAByte(0, "kill")):
            world.hold(directory, players, time)
        world.check(directory, players, seen)


# --- a real process, a real kill -9 ---------------------------------------------------------------
def in_process(at: int, run: Callable[[], object]) -> bool:
    """Run it in a process of its own that dies at its `at`-th write; whether it came to its end."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            files.OS = Killing(at)  # type: ignore[misc]
            run()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


def test_kill_9_of_the_referee_at_every_write(
    world: World, tmp_path: Path, is_exhaustive: bool
) -> None:
    at, step, kills = 1, 1 if is_exhaustive else 83, 0
    while True:
        directory, players, time = tmp_path / f"at-{at}", world.players(), Time()
        ended = in_process(at, lambda d=directory, p=players: world.hold(d, p, Time()))  # type: ignore[misc]
        seen = public(directory)
        if seen:
            time.now = replayed(world.job.terms, seen).time
        with door(FaultsAtAByte(0, "kill")):
            world.hold(directory, players, time)
        world.check(directory, players, [seen])
        if ended:
            break
        kills, at = kills + 1, at + step
    assert kills > 3


def test_kill_9_again_and_again(world: World, tmp_path: Path) -> None:
    """One session, held by as many processes as it takes."""
    directory, players = tmp_path / "session", world.players()
    seen: list[list[bytes]] = []

    def hold() -> None:
        time = Time()
        log = public(directory)
        time.now = replayed(world.job.terms, log).time if log else 0
        world.hold(directory, world.players(), time)

    rng = random.Random(1)
    while not in_process(rng.randint(20, 90), hold):
        seen.append(public(directory))
    world.check(directory, players, seen)
    assert len(seen) > 3

"""What a worker does when torchrun ends it; tests/e2e/test_torchrun.py kills real ones."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from tallystick.run.distributed import torchrun
from tallystick.run.distributed.torchrun import (
    check_signalled,
    outliving_sigterm,
    say_ending,
    speaks,
)
from tallystick.run.distributed.transport import PeerLostError, WorkerError
from tallystick.run.execute.loop import Stop, interrupts

LAUNCHED = {"RANK": "0", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture(autouse=True)
def _launched(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torchrun, "WORKER_0_GRACE_S", 0.1)
    monkeypatch.setattr(torchrun, "PEER_GRACE_S", 0.3)


def _sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_before_the_run_is_an_error_and_after_it_nothing() -> None:
    stop = Stop()

    @outliving_sigterm
    def trains(before: bool, after: bool) -> int:
        check_signalled()
        if before:
            _sigterm()
            check_signalled()
        with interrupts(stop):
            _sigterm()
        if after:
            _sigterm()
        return 7

    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(WorkerError, match="before the run began") as caught:
        trains(True, False)
    assert caught.value.exit_code == 2 and "same command" in caught.value.next_action
    assert not stop.requested
    assert trains(False, True) == 7 and stop.requested
    assert signal.getsignal(signal.SIGTERM) is handler


def test_without_torchrun_the_signal_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK")
    before = signal.getsignal(signal.SIGTERM)
    assert outliving_sigterm(lambda: signal.getsignal(signal.SIGTERM))() is before


def test_under_torchrun_two_signals_are_one_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    for patient in (True, False):
        if patient:
            monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
        else:
            monkeypatch.delenv("TORCHELASTIC_RUN_ID")
        stop = Stop()
        stop(signal.SIGINT, None)
        if patient:
            stop(signal.SIGINT, None)
            continue
        with pytest.raises(KeyboardInterrupt):
            stop(signal.SIGINT, None)


class Table:
    """The table at which workers meet, or none."""

    def __init__(self, there: bool = True) -> None:
        self.keys: dict[str, bytes] = {}
        self.counts: dict[str, int] = {}
        self.there = there
        self.store = SimpleNamespace(add=self.add)

    def _look(self) -> None:
        if not self.there:
            raise RuntimeError("Connection reset by peer")

    def has(self, key: str) -> bool:
        self._look()
        return key in self.keys

    def put(self, key: str, value: bytes) -> None:
        self._look()
        self.keys[key] = value

    def add(self, key: str, count: int) -> int:
        self._look()
        self.counts[key] = self.counts.get(key, 0) + count
        return self.counts[key]


def test_one_worker_speaks_where_worker_0_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def speak(meeting: Any, rank: int | None) -> bool:
        return speaks(meeting, PeerLostError(rank, "closed"))

    table: Any = Table()
    assert [speak(table, rank) for rank in (0, None, 2)] == [True, False, False]
    table = Table()
    say_ending(table)
    assert [speak(table, rank) for rank in (0, None, 2)] == [False, False, False]
    gone: Any = Table(there=False)
    say_ending(gone)
    assert speak(gone, 0) and speak(gone, None)
    monkeypatch.delenv("RANK")
    assert not speak(Table(), 0)

"""The thread of an encoder: which texts share a pass, and what one text does to the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tallystick.commit.signing import PrivateKey
from tallystick.errors import UsageError
from tallystick.serving.api_keys import ServingLimits
from tallystick.serving.encoder_thread import EncoderThread, WantedEncoding
from tallystick.serving.fields import ApiError
from tallystick.serving.keeping import MemoryKeeper


class Room:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Slow:
    """An encoder whose passes wait until they are let through. A request is its number of tokens;
    0 has no encoding, and -1 cannot be signed."""

    def __init__(self) -> None:
        self.engine = SimpleNamespace(longest=10)
        self.statement = SimpleNamespace(programs=())
        self.passes = list[list[int]]()
        self.began, self.goes = threading.Semaphore(0), threading.Semaphore(0)

    def prepare(self, request: int) -> Any:
        if request == 0:
            raise UsageError("The text has no tokens.")
        return SimpleNamespace(text=range(abs(request)), request=request)

    def values(self, jobs: list[Any]) -> list[np.ndarray]:
        self.passes.append([job.request for job in jobs])
        self.began.release()
        assert self.goes.acquire(timeout=20)
        if any(job.request == 13 for job in jobs):
            raise MemoryError("no memory")
        return [np.array([job.request], np.float32) for job in jobs]

    def signed(self, job: Any, values: np.ndarray, _key: object, _days: int) -> Any:
        if job.request == -1:
            raise RuntimeError("no signature")
        return SimpleNamespace(values=values, files=None)


class Running:
    def __init__(self) -> None:
        self.encoder, self.told = Slow(), list[BaseException]()
        self.thread = EncoderThread(
            self.encoder,
            PrivateKey.generate(),
            MemoryKeeper(),
            ServingLimits(),
            self.told.append,  # type: ignore[arg-type]
        )
        self.thread.start()

    def ask(self, *requests: int, owner: str = "anna") -> list[WantedEncoding]:
        wanted = [WantedEncoding(owner, n, Room()) for n in requests]  # type: ignore[arg-type]
        self.thread.submit(wanted)
        return wanted

    def began(self) -> None:
        assert self.encoder.began.acquire(timeout=20)


@pytest.fixture
def running() -> Iterator[Running]:
    found = Running()
    yield found
    found.encoder.goes.release(100)
    found.thread.close()


def value(one: WantedEncoding) -> float:
    return float(one.result.result(20).encoding.values[0])


def test_a_pass_is_filled_in_turns(running: Running) -> None:
    """Each key gives a text in turn, until the pass has its rows."""
    (first,) = running.ask(2)
    running.began()
    hers = running.ask(4, 4, 4, 4)
    his = running.ask(3, owner="bert")
    assert running.thread.load == (1, 5)
    running.encoder.goes.release(10)
    assert [value(one) for one in (first, *hers, *his)] == [2, 4, 4, 4, 4, 3]
    assert running.encoder.passes == [[2], [4, 3, 4], [4, 4]]
    assert running.thread.load == (0, 0) and running.told == []
    assert all(one.room.released for one in (*hers, *his))  # type: ignore[attr-defined]


def test_a_text_at_fault_ends_alone(running: Running) -> None:
    (first,) = running.ask(10)
    running.began()
    empty, unsigned, fine = running.ask(0, -1, 5)
    running.encoder.goes.release(10)
    assert value(first) == 10 and value(fine) == 5
    with pytest.raises(UsageError):
        empty.result.result(20)
    with pytest.raises(RuntimeError):
        unsigned.result.result(20)
    assert [type(error) for error in running.told] == [RuntimeError]


def test_a_pass_that_fails_ends_its_texts_and_no_others(running: Running) -> None:
    (lost,) = running.ask(13)
    running.began()
    (fine,) = running.ask(4)
    running.encoder.goes.release(10)
    with pytest.raises(MemoryError):
        lost.result.result(20)
    assert value(fine) == 4 and running.thread.alive
    assert [type(error) for error in running.told] == [MemoryError]


def test_a_text_that_fails_does_not_end_the_others_of_its_pass(running: Running) -> None:
    """The texts of a pass that fails are computed one by one."""
    (first,) = running.ask(10)
    running.began()
    running.encoder.engine.longest = 20
    before, lost, after = running.ask(2, 13, 5)
    running.encoder.goes.release(10)
    assert [value(one) for one in (first, before, after)] == [10, 2, 5]
    with pytest.raises(MemoryError):
        lost.result.result(20)
    assert running.encoder.passes == [[10], [2, 13, 5], [2], [13], [5]]
    assert [type(error) for error in running.told] == [MemoryError] * 2  # the pass, and the text
    assert running.thread.load == (0, 0)


def test_a_client_that_has_gone(running: Running) -> None:
    """What is under way goes on, what waits is left out, and the thread lives."""
    (under,) = running.ask(10)
    running.began()
    (waits,) = running.ask(3)
    (fine,) = running.ask(5, owner="bert")
    assert not under.result.cancel() and waits.result.cancel()
    running.encoder.goes.release(10)
    assert value(under) == 10 and value(fine) == 5
    assert running.encoder.passes == [[10], [5]] and running.thread.load == (0, 0)
    assert waits.room.released == 1  # type: ignore[attr-defined]


def test_the_end(tmp_path: Path) -> None:
    running = Running()
    (under,) = running.ask(10)
    running.began()
    waits, gone = running.ask(3, 4)
    assert gone.result.cancel()
    ends = threading.Thread(target=running.thread.close)
    ends.start()
    while running.thread.alive:  # closed, before the pass has ended
        pass
    running.encoder.goes.release(10)
    ends.join(20)
    assert value(under) == 10 and not running.thread.alive
    with pytest.raises(ApiError):
        waits.result.result(20)

"""The one thread that owns a model's engine, for many clients at once.

Whoever wants an answer puts it into a bounded queue, which serves the keys in turn. The thread
takes from it whenever an answer has ended, and computes all that are under way in the same passes.
An answer that has ended is signed and kept by other threads, so that the engine goes on. Its place
is free only after that: where receipts are kept more slowly than answers are drawn, fewer are.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tallystick.api.answering import (
    Answering,
    AnswerUnderway,
    ClientsEnd,
    GivenAnswer,
    PreparedRequest,
)
from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PrivateKey
from tallystick.serving.api_keys import ServingLimits
from tallystick.serving.fair import FairQueue
from tallystick.serving.fields import ending
from tallystick.serving.keeping import AnswerKeeper, KeptRoom

_SIGNING_THREADS = 2


@dataclass(frozen=True, eq=False)
class KeptAnswer:
    """An answer, and the id under which it is kept."""

    id: str
    answer: GivenAnswer


class AnswerSink(Protocol):
    """Who waits for an answer. Its methods are called by threads of the model's, and never wait."""

    def token(self, token: int, logprob: np.float32) -> None: ...

    def ended(self, kept: KeptAnswer) -> None: ...

    def failed(self, error: BaseException) -> None: ...


@dataclass(eq=False)
class WantedAnswer:
    """Answer `number` to a request of the key `owner`. `room` is where it will be kept; the thread
    releases it, once the answer has been put into its queue. `end` is the client's, which may come
    until the answer is `settled`: it is being signed, or nobody waits for it."""

    owner: str
    prepared: PreparedRequest
    number: int
    sink: AnswerSink
    room: KeptRoom
    underway: AnswerUnderway | None = None
    cancelled: bool = field(default=False)
    end: ClientsEnd | None = None
    settled: bool = False


class ModelThread:
    """Answers with one model. `share_prefixes` lets keys share computed prefixes: then the time of
    an answer tells whether another key has asked with the same beginning.

    It calls `tell` with faults of this machine.
    """

    def __init__(
        self,
        answering: Answering,
        key: PrivateKey,
        keeper: AnswerKeeper,
        limits: ServingLimits,
        tell: Callable[[BaseException], None],
        share_prefixes: bool = False,
    ) -> None:
        self.answering = answering
        self._key, self._keeper, self._limits, self._tell = key, keeper, limits, tell
        self._share = share_prefixes
        self._waiting: FairQueue[WantedAnswer] = FairQueue()
        self._underway: dict[WantedAnswer, None] = {}  # in the engine, or being signed
        self._of_key: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._closed = False
        self._signing = ThreadPoolExecutor(_SIGNING_THREADS, "tallystick-signing")
        self._thread = threading.Thread(target=self._run, name="tallystick-engine", daemon=True)

    def start(self) -> None:
        """Begin. Every program of the statement is derived before: nothing is signed with another
        one, and no client waits for it. Raises as `Answering.program`."""
        for name in self.answering.statement.programs:
            self.answering.program(name)
        self.answering.decode(self.answering.statement.stop[:1] or [0])
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether answers are given."""
        return self._thread.is_alive() and not self._closed

    @property
    def load(self) -> tuple[int, int]:
        """How many answers are under way, and how many wait."""
        with self._changed:
            return len(self._underway), len(self._waiting)

    # -- by any thread -----------------------------------------------------------------------------

    def submit(self, wanted: Sequence[WantedAnswer]) -> None:
        """Put answers of one key into the queue, all or none. Raises ApiError."""
        limits = self._limits
        with self._changed:
            if self._closed:
                raise ending()
            self._waiting.put_all(wanted, limits.key_waiting, limits.waiting, "answers")
            self._changed.notify_all()

    def cancel(self, wanted: Sequence[WantedAnswer]) -> None:
        """Nobody waits for these answers any more: they end, and nothing is signed."""
        with self._changed:
            for one in wanted:
                one.cancelled = one.settled = True
                if self._waiting.remove(one):
                    one.room.release()
            self._changed.notify_all()

    def end_after(self, one: WantedAnswer, end: ClientsEnd) -> bool:
        """The client ends an answer there, and it is signed (ANSWERS 6.6.2). False where it is
        settled already."""
        with self._changed:
            if not one.settled and (one.end is None or end[0] < one.end[0]):
                one.end = end
            return not one.settled

    def close(self) -> None:
        """End. Whoever still waits gets an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        self._signing.shutdown()

    # -- the engine's thread -----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._entered():
                self._pass()
        except BaseException as error:
            self._tell(error)
        finally:
            self._give_up()

    def _entered(self) -> bool:
        """Let answers enter; wait where there is nothing to compute. False at the end."""
        entering: list[WantedAnswer] = []
        with self._changed:
            while not self._closed:
                while len(self._underway) < self._limits.at_once:
                    one = self._waiting.take(
                        lambda owner: self._of_key[owner] < self._limits.key_at_once
                    )
                    if one is None:
                        break
                    self._underway[one] = None
                    self._of_key[one.owner] += 1
                    entering.append(one)
                if entering or any(not _ended(one) for one in self._underway):
                    break
                self._changed.wait()
            closed = self._closed
        for one in entering:
            self._enter(one)
        return not closed

    def _enter(self, one: WantedAnswer) -> None:
        namespace = b"" if self._share else sha256(one.owner.encode("utf-8"))
        try:
            one.underway = self.answering.submit(
                one.prepared, one.number, one.sink.token, namespace, one.end
            )
        except Exception as error:  # of this request alone: a refusal, or a fault of ours
            self._leave(one)
            one.sink.failed(error)

    def _pass(self) -> None:
        with self._changed:
            computing = [one for one in self._underway if not _ended(one)]
        for one in computing:
            assert one.underway is not None
            if one.cancelled:
                one.underway.cancel()
            elif one.end is not None:
                one.underway.end_after(one.end)
        self.answering.step()
        for one in computing:
            if not _ended(one):
                continue
            if one.cancelled:
                self._leave(one)
            else:
                self._signing.submit(self._sign, one)

    def _leave(self, one: WantedAnswer) -> None:
        with self._changed:
            one.settled = True
            if one in self._underway:
                del self._underway[one]
                self._of_key[one.owner] -= 1
                if not self._of_key[one.owner]:
                    del self._of_key[one.owner]
                one.room.release()
            self._changed.notify_all()

    def _give_up(self) -> None:
        error = ending()
        with self._changed:
            self._closed = True
            left = [one for one in self._underway if not _ended(one)] + self._waiting.clear()
            for one in left:
                one.settled = True  # nobody signs them, so no client's end counts any more
        for one in left:
            one.room.release()
            one.sink.failed(error)

    # -- the threads that sign ---------------------------------------------------------------------

    def _sign(self, one: WantedAnswer) -> None:
        try:
            assert one.underway is not None
            with self._changed:
                one.settled = True
            if one.end is not None:
                one.underway.end_after(one.end)
            answer = self.answering.signed(one.underway, self._key, self._keeper.days)
            kept = KeptAnswer(self._keeper.keep(answer, one.owner, one.room), answer)
        except BaseException as error:
            self._tell(error)
            one.sink.failed(error)
        else:
            one.sink.ended(kept)
        finally:
            self._leave(one)


def _ended(one: WantedAnswer) -> bool:
    return one.underway is not None and one.underway.ended

"""A party's answers: kept in one place, within bounds, and made in one thread.

An answer may take hours, so a server replies meanwhile. The worker makes one at a time, those of
games before those about logs. The party keeps them, so an equal query has its answer at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from tallystick.errors import TallystickError
from tallystick.prover.local import Party

# The most queries of strangers about logs that may wait.
_WAITING = 16
# The bytes that each share of the kept answers may take: answers to games, answers to strangers
# (PROTOCOL 6.15), and answers that only copy the run's files, whoever asks. A share makes room in
# itself alone. So strangers push out no answer to a game, and the copy of a whole log pushes out
# nothing but answers of its kind.
ANSWERS_ROOM = (64 << 20, 64 << 20, 1 << 20)
TO_GAMES, TO_STRANGERS, FROM_FILES = range(3)


class Answers:
    """The signed answers that a party has made, by query, for any thread. The one that was asked
    for longest ago makes room; it is made again when it is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shares = tuple(OrderedDict[bytes, bytes]() for _ in ANSWERS_ROOM)
        self._room = list(ANSWERS_ROOM)

    def get(self, query: bytes) -> bytes | None:
        """The answer to `query`; None if it is not kept."""
        with self._lock:
            for share in self._shares:
                if query in share:
                    share.move_to_end(query)
                    return share[query]
        return None

    def keep(self, query: bytes, answer: bytes, share: int) -> None:
        """Keep the answer to a query, which is not kept yet, in one of the shares above."""
        with self._lock:
            kept = self._shares[share]
            kept[query] = answer
            self._room[share] -= len(query) + len(answer)
            while self._room[share] < 0 and len(kept) > 1:
                old, freed = kept.popitem(last=False)
                self._room[share] += len(old) + len(freed)


class Keeping(Party, Protocol):
    """A party that keeps its answers, so that no one else need: a Prover."""

    def answer(self, query: bytes, stranger: bool = False) -> bytes:
        """The signed answer. Where no game but a `stranger` asks, it pushes out none to a game."""

    def kept(self, query: bytes) -> bytes | None:
        """The answer to `query`, without making it, from any thread; None if it is not kept."""


class Worker:
    """Makes the answers of `party`. It calls `tell` with a sentence where the machine fails."""

    def __init__(self, party: Keeping, tell: Callable[[str], None] = lambda _: None) -> None:
        self._party, self._tell = party, tell
        self._work = threading.Condition()
        self._games: deque[tuple[bytes, Future[bytes]]] = deque()
        self._logs: deque[tuple[bytes, Future[bytes]]] = deque()
        self._futures: dict[bytes, Future[bytes]] = {}  # that wait or are being made
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tallystick-party", daemon=True)
        self._thread.start()

    def ask(self, query: bytes) -> Future[bytes]:
        """The answer to a query of a game, now or later. One that failed is tried again."""
        with self._work:
            found = self._found(query)
            if found is None:
                found = self._put(self._games, query)
            elif (query, found) in self._logs:  # a stranger has asked for it before the game did
                self._logs.remove((query, found))
                self._games.append((query, found))
            return found

    def ask_log(self, query: bytes) -> Future[bytes] | None:
        """As `ask`, behind all queries of games; None if too many wait."""
        with self._work:
            found = self._found(query)
            if found is None:
                if len(self._logs) >= _WAITING:
                    return None
                found = self._put(self._logs, query)
            return found

    def close(self, seconds: float = 5.0) -> bool:
        """Begin nothing more, and wait so long for the answer under way; True if it has ended."""
        with self._work:
            self._closed = True
            self._work.notify_all()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _found(self, query: bytes) -> Future[bytes] | None:
        found = self._futures.get(query)
        if found is None and (kept := self._party.kept(query)) is not None:
            found = Future()
            found.set_result(kept)
        return found

    def _put(self, queue: deque[tuple[bytes, Future[bytes]]], query: bytes) -> Future[bytes]:
        future: Future[bytes] = Future()
        self._futures[query] = future
        queue.append((query, future))
        self._work.notify_all()
        return future

    def _run(self) -> None:
        while True:
            with self._work:
                while not (self._games or self._logs or self._closed):
                    self._work.wait()
                if self._closed:
                    return
                stranger = not self._games
                query, future = (self._logs if stranger else self._games).popleft()
            self._make(query, future, stranger)

    def _make(self, query: bytes, future: Future[bytes], stranger: bool) -> None:
        try:
            answer = self._party.answer(query, stranger)
        except BaseException as error:
            with self._work:
                del self._futures[query]  # the query stays open (PROTOCOL 2.8.1)
            kind = error.message if isinstance(error, TallystickError) else repr(error)
            self._tell(f"A query could not be answered yet: {kind}")
            future.set_exception(error)
            return
        with self._work:
            del self._futures[query]  # the party keeps it
        future.set_result(answer)

"""One thread in which a party executes its run, so that its server can reply meanwhile.

An answer may take hours. The worker makes one at a time, those of games before log blocks. It keeps
the answers of games, so an equal query has its answer at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future

from tallystick.errors import TallystickError
from tallystick.prover.local import Party

# Answers about logs: so many may wait, or lie ready to be fetched.
_WAITING, _READY = 16, 64
# Answers of games: so many bytes are kept. An older one is made again.
_KEPT_BYTES = 64 << 20


class Worker:
    """Makes the answers of `party`. It calls `tell` with a sentence where the machine fails."""

    def __init__(self, party: Party, tell: Callable[[str], None] = lambda _: None) -> None:
        self._party, self._tell = party, tell
        self._work = threading.Condition()
        self._games: deque[tuple[bytes, Future[bytes]]] = deque()
        self._logs: deque[tuple[bytes, Future[bytes]]] = deque()
        self._futures: dict[bytes, Future[bytes]] = {}
        self._kept: OrderedDict[bytes, int] = OrderedDict()
        self._ready: deque[bytes] = deque()
        self._bytes = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tallystick-party", daemon=True)
        self._thread.start()

    def ask(self, query: bytes) -> Future[bytes]:
        """The answer to a query of a game, now or later. One that failed is tried again."""
        with self._work:
            found = self._futures.get(query)
            if found is None:
                found = self._put(self._games, query)
            elif query in self._kept:
                self._kept.move_to_end(query)
            elif (query, found) in self._logs:  # a stranger has asked for it before the game did
                self._logs.remove((query, found))
                self._games.append((query, found))
            return found

    def ask_log(self, query: bytes) -> Future[bytes] | None:
        """As `ask`, behind all queries of games; None if too many wait."""
        with self._work:
            found = self._futures.get(query)
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
                of_game = bool(self._games)
                query, future = (self._games if of_game else self._logs).popleft()
            self._make(query, future, of_game)

    def _make(self, query: bytes, future: Future[bytes], of_game: bool) -> None:
        try:
            answer = self._party.answer(query)
        except BaseException as error:
            with self._work:
                del self._futures[query]  # the query stays open (PROTOCOL 2.8.1)
            kind = error.message if isinstance(error, TallystickError) else repr(error)
            self._tell(f"A query could not be answered yet: {kind}")
            future.set_exception(error)
            return
        with self._work:
            self._keep(query, len(answer), of_game)
        future.set_result(answer)

    def _keep(self, query: bytes, size: int, of_game: bool) -> None:
        if not of_game:
            self._ready.append(query)
            while len(self._ready) > _READY:
                self._futures.pop(self._ready.popleft(), None)
            return
        self._kept[query] = size
        self._bytes += size
        while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
            old, freed = self._kept.popitem(last=False)
            self._bytes -= freed
            self._futures.pop(old, None)

"""Who goes first where a server is full: of the peer that has the most there, the oldest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """Something of a peer that stands in a line since a moment, in seconds of the loop's clock."""

    peer: str
    since: float


W = TypeVar("W", bound=Waiting)


class Line(Generic[W]):
    """Things of many peers, each peer's in the order in which they came."""

    def __init__(self) -> None:
        self._peers: dict[str, dict[W, None]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, one: W) -> bool:
        return one in self._peers.get(one.peer, ())

    def join(self, one: W, now: float) -> None:
        """Put `one` at the end, at the moment `now`."""
        self.leave(one)
        one.since = now
        self._peers.setdefault(one.peer, {})[one] = None
        self._length += 1

    def leave(self, one: W) -> None:
        """Take `one` out, if it is there."""
        if one in self:
            del self._peers[one.peer][one]
            self._length -= 1
            if not self._peers[one.peer]:
                del self._peers[one.peer]

    def count(self, peer: str) -> int:
        """How many of `peer` are there."""
        return len(self._peers.get(peer, ()))

    def oldest(self, peer: str) -> W | None:
        """The one of `peer` that has been there longest."""
        return next(iter(self._peers.get(peer, ())), None)

    def first(
        self, may: Callable[[W], bool], later: Container[str], weights: Counter[str] | None = None
    ) -> W | None:
        """The one to go first, of the oldest of each peer that `may` go.

        Peers in `later` come after all others. Then the peer of the most weight goes first, which
        is the number that it has here where no `weights` are given, then the oldest.
        """
        best: W | None = None
        least: tuple[bool, int] = (True, 1)
        for peer, mine in self._peers.items():
            rank = peer in later, -(len(mine) if weights is None else weights[peer])
            if rank > least:
                continue
            one = next(iter(mine))
            if (best is None or rank < least or one.since < best.since) and may(one):
                best, least = one, rank
        return best

"""Who goes first where a server is full: of the peer that has the most there, the oldest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        self, weight: Callable[[str], int], later: Callable[[str], bool], may: Callable[[W], bool]
    ) -> W | None:
        """The one to go first, of the oldest of each peer that `may` go.

        Peers that go `later` come after all others; then the peer of the most `weight` goes first,
        then the oldest.
        """
        return min(
            filter(may, self._heads()),
            key=lambda one: (later(one.peer), -weight(one.peer), one.since),
            default=None,
        )

    def _heads(self) -> Iterator[W]:
        return (next(iter(mine)) for mine in self._peers.values())

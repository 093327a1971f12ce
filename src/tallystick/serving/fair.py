"""A queue that serves its keys in turn: whoever has many answers waiting delays nobody else."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from tallystick.serving.fields import busy


class Owned(Protocol):
    """Something that waits for the key with this name."""

    @property
    def owner(self) -> str: ...


T = TypeVar("T", bound=Owned)


class FairQueue(Generic[T]):
    """Each key's things in their order. A key that has been served goes behind all others."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[T]] = OrderedDict()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def count(self, owner: str) -> int:
        """How many things of a key wait."""
        return len(self._lines.get(owner, ()))

    def put(self, one: T) -> None:
        self._lines.setdefault(one.owner, deque()).append(one)
        self._length += 1

    def put_all(self, things: Sequence[T], most_of_key: int, most: int, what: str) -> None:
        """Put things of one key into the queue, all or none. Raises ApiError where more than
        `most_of_key` of the key, or `most` of all keys, would wait."""
        owner = things[0].owner
        if self.count(owner) + len(things) > most_of_key:
            raise busy(f"At most {most_of_key} {what} of a key wait.")
        if self._length + len(things) > most:
            raise busy(f"At most {most} {what} wait.", "server_overloaded")
        for one in things:
            self.put(one)

    def take(self, may: Callable[[str], bool]) -> T | None:
        """The next thing, of the first key in turn that `may` be served."""
        owner = next((owner for owner in self._lines if may(owner)), None)
        if owner is None:
            return None
        one = self._lines[owner].popleft()
        self._length -= 1
        self._lines.move_to_end(owner)
        if not self._lines[owner]:
            del self._lines[owner]
        return one

    def remove(self, one: T) -> bool:
        """Take a thing out, if it waits."""
        line = self._lines.get(one.owner)
        if line is None or one not in line:
            return False
        line.remove(one)
        self._length -= 1
        if not line:
            del self._lines[one.owner]
        return True

    def clear(self) -> list[T]:
        """Everything that waits; nothing does after that."""
        found = [one for line in self._lines.values() for one in line]
        self._lines.clear()
        self._length = 0
        return found

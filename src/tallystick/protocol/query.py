"""A query to a party: the interface of each kind, and the checks that kinds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import ClassVar, Generic

from tallystick.commit import merkle
from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.signing import RunCommitment
from tallystick.errors import UsageError
from tallystick.protocol.facts import Facts
from tallystick.protocol.layouts import B, Layout, path_bytes


class Query(ABC, Generic[B]):
    """A query to one party. Subclasses are dataclasses whose fields are the layout's."""

    KIND: ClassVar[int]

    @property
    @abstractmethod
    def layout(self) -> Layout[B]:
        """The body of the answer, and its layout."""

    @abstractmethod
    def check(self, facts: Facts, run: RunCommitment) -> None:
        """Raise UsageError for a query that no referee of this job and run asks."""

    @abstractmethod
    def most(self, facts: Facts, run: RunCommitment) -> int:
        """Bytes of a true body at most; the query passes `check`."""


# --- lengths -------------------------------------------------------------------------------------
DEPTH = 5  # PROTOCOL 2.4


def parts_bytes(count: int) -> int:
    """Bytes of the hashes of the parts of a range of so many leaves."""
    return HASH_BYTES * len(merkle.parts_of(0, count, DEPTH))


def slot_path(facts: Facts) -> int:
    """Bytes of the inclusion proof of a slot, at most."""
    return path_bytes(len(facts.slots))


# --- checks --------------------------------------------------------------------------------------
def below(number: int, count: int, what: str) -> None:
    """Raise UsageError unless there is such a number among `count`."""
    if number >= count:
        raise UsageError(f"There is no {what} {number} of {count}.", "Ask for one that exists.")


def ascending(numbers: tuple[int, ...], count: int, what: str) -> None:
    """Raise UsageError unless the numbers ascend and are below `count`."""
    if not numbers or any(a >= b for a, b in pairwise(numbers)):
        raise UsageError(f"Numbers of a query for {what}s must ascend.", "Sort them.")
    below(numbers[-1], count, what)


def subtree(size: int, first: int, count: int) -> None:
    """Raise UsageError unless the range is one that a tree of `size` is split into (2.4)."""
    start, length = 0, size
    while (start, length) != (first, count):
        if length <= 1 or not start <= first < start + length or count >= length:
            raise UsageError(f"No {count} leaves at {first} are a part of {size}.", "Descend.")
        half = 1 << ((length - 1).bit_length() - 1)
        start, length = (start, half) if first < start + half else (start + half, length - half)

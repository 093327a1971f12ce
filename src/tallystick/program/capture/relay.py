"""Iterators and generators that can be taken back, which Python itself cannot (PROGRAM 5.19)."""

from __future__ import annotations

import io
import types
from collections.abc import Iterator
from typing import Any


def is_iterator(value: Any) -> bool:
    """Whether `value` goes on at every `next`, and is of no class of the person's."""
    if not isinstance(value, Iterator) or isinstance(value, (io.IOBase, Relay)):
        return False
    return not isinstance(getattr(type(value), "__next__", None), types.FunctionType)


class Relay:
    """In the place of an iterator or a generator: it can be taken back to an earlier position."""

    def __init__(self, iterator: Any) -> None:
        self.iterator = iterator
        self.position = 0
        self.log: list[tuple[Any, bool, Any]] = []  # what was sent, whether it raised, the result

    def _step(self, sent: Any, run: Any) -> Any:
        if self.position == len(self.log):
            try:
                self.log.append((sent, False, run()))
            except Exception as error:
                self.log.append((sent, True, error))
        known, raised, result = self.log[self.position]
        if known is not sent and known != sent:
            raise RuntimeError("A generator was sent something else than before.")
        self.position += 1
        if raised:
            raise result
        return result

    def __iter__(self) -> Relay:
        return self

    def __next__(self) -> Any:
        return self._step(None, lambda: next(self.iterator))

    def send(self, value: Any) -> Any:
        return self._step(value, lambda: self.iterator.send(value))

    def close(self) -> None:
        self.iterator.close()

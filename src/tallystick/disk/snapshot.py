"""Tensors that one thread reads piece by piece, while their owner waits to change them.

A checkpoint is written from the memory of the state itself. The owner calls `detach` before it
changes the state. What is not read by then is copied, or the owner waits until it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Condition

import numpy as np

from tallystick.commit.tensor import Array, canonical_array, dtype_name
from tallystick.disk.direct import BLOCK


class Snapshot:
    """`tensors` as they are now. `types` has (dtype, shape) of each."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        arrays = {name: canonical_array(array) for name, array in tensors.items()}
        self.types = {
            name: (dtype_name(a.dtype), tuple(map(int, a.shape))) for name, a in arrays.items()
        }
        # What is not read yet of each tensor, as bytes.
        self._left: dict[str, Array] = {
            name: array.reshape(-1).view(np.uint8) for name, array in arrays.items() if array.size
        }
        self._turn = Condition()
        self._reading = False  # a piece of the owner's memory is in the reader's hand
        self._attached = True

    @property
    def left(self) -> int:
        """Bytes that no piece has held yet."""
        with self._turn:
            return self._bytes_left()

    def _bytes_left(self) -> int:
        return sum(rest.nbytes for rest in self._left.values())

    def pieces(self, names: Sequence[str]) -> Iterator[Array]:
        """The bytes of these tensors, one after the other, u8[n] each. A piece is valid until the
        next one is asked for. The reader that stops early calls `forget`."""
        for name in names:
            while (piece := self._next(name)) is not None:
                yield piece
        self.forget()

    def _next(self, name: str) -> Array | None:
        with self._turn:
            self._reading = False
            rest = self._left.pop(name, None)
            if rest is not None:
                if rest.nbytes > BLOCK:
                    self._left[name] = rest[BLOCK:]
                self._reading = self._attached
            self._turn.notify_all()
            return None if rest is None else rest[:BLOCK]

    def forget(self) -> None:
        """Nothing more will be read."""
        with self._turn:
            self._left.clear()
            self._reading = False
            self._turn.notify_all()

    def detach(self, may_copy: Callable[[int], bool]) -> None:
        """Return once the owner may change the tensors. What is left is copied where
        `may_copy(bytes)` says so and there is memory; else this waits until it is read."""
        with self._turn:
            self._turn.wait_for(lambda: not self._reading)
            if self._left and may_copy(self._bytes_left()):
                try:
                    self._left = {name: rest.copy() for name, rest in self._left.items()}
                except MemoryError:
                    pass
                else:
                    self._attached = False
                    return
            self._turn.wait_for(lambda: not self._reading and not self._left)

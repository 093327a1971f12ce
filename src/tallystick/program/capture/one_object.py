"""One tensor that several places hold stays one object, call after call (PROGRAM 5.20 g).

A call gets the slots' tensors in the places where the call before has left its own. Code may ask
whether two places hold the same object (`is`, `in` of a list). So what stands for one object goes
into every place that holds it, whether that place is a slot or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from tallystick.program.capture.containers import Path, parts, with_part
from tallystick.program.capture.places import KeptPlace, reached_from


def put_part(place: KeptPlace, path: Path, tensor: Tensor) -> None:
    """`tensor` at a path of what a place holds."""
    held = place.get()
    changed = with_part(held, path, tensor)
    if changed is not held:
        place.set(changed)


class Restored(Protocol):
    """A state that can be put back."""

    def restore(self) -> None: ...


class Held(Protocol):
    """A slot that knows what the call before has left in its places."""

    left: Tensor | None


class OneObject:
    """Of one call: what stands for which tensor that the call before has left."""

    def __init__(self, roots: Mapping[str, Any]) -> None:
        self.roots = roots
        self._holders: dict[int, list[tuple[KeptPlace, Path]]] | None = None
        self._given: dict[int, tuple[Tensor, Tensor]] = {}
        self._loaded: dict[int, tuple[Tensor, Tensor]] = {}

    def end_call(self) -> None:
        """The next call finds other tensors."""
        self._holders = None
        self._given = {}

    def put(self, left: Tensor, seen: Tensor) -> Tensor:
        """`seen` in all places that hold `left`. The result is what stands for `left` there: of
        another slot, if that held it too and came first."""
        for old, given in self._given.values():
            if left is old or left is given:
                return given
        if self._holders is None:
            self._holders = {}
            for place, value in reached_from(self.roots).places:
                for path, tensor in parts(value):
                    self._holders.setdefault(id(tensor), []).append((place, path))
        for place, path in self._holders.get(id(left), ()):
            with contextlib.suppress(LookupError, AttributeError, ValueError, TypeError):
                put_part(place, path, seen)
        self._given[id(left)] = left, seen
        return seen

    def loaded(self, left: Tensor, content: Tensor) -> Tensor:
        """What stands for `left` after the training, of the value `content`."""
        return self._loaded.setdefault(id(left), (left, content))[1]


class Left:
    """What the slots' places were left with at one moment, as `Kept` of `python_state` has the
    rest; `restore` puts both back."""

    def __init__(self, python: Restored, slots: Sequence[Held]) -> None:
        self.python = python
        self.left = [(one, one.left) for one in slots]

    def restore(self) -> None:
        self.python.restore()
        for one, left in self.left:
            one.left = left

"""Lists, dicts, deques and attributes around the traced code, put back where tensors came in.

A call leaves tensors behind: a loss in a list of losses, features that a hook notes. Those of a
trace would have no content afterwards.
"""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tallystick.program.capture.places import Reached, within

_MANY = 1024


@dataclass(eq=False)
class _Container:
    said: str
    value: Any  # a list, deque, dict or set
    content: Any
    attributes: bool = False

    def place(self, key: Any) -> str:
        return within(self.said, f".{key}" if self.attributes else f"[{key!r}]")

    def now(self) -> dict[Any, Any]:
        return _items(self.value)

    def news(self) -> list[Any]:
        """What is there and was not, with tensors in it."""
        before = {id(v) for v in _items(self.content).values()}
        return [v for v in self.now().values() if id(v) not in before and tensors_in(v)]

    def _lost(self) -> bool:
        """Whether something with tensors in it is no more there."""
        now = {id(v) for v in self.now().values()}
        return any(id(v) not in now and tensors_in(v) for v in _items(self.content).values())

    def put_back(self) -> None:
        if not self.news() and not self._lost():
            return
        if isinstance(self.value, list):
            self.value[:] = self.content
            return
        self.value.clear()
        if isinstance(self.value, deque):
            self.value.extend(self.content)
        else:
            self.value.update(self.content)


def _items(value: Any) -> dict[Any, Any]:
    return dict(value) if isinstance(value, dict) else dict(enumerate(value))


def tensors_in(value: Any, depth: int = 3) -> list[Tensor]:
    """The tensors in a value, its containers, and their containers."""
    if isinstance(value, Tensor):
        return [value]
    if depth and isinstance(value, (list, tuple, deque, set)):
        return [t for part in value for t in tensors_in(part, depth - 1)]
    if depth and isinstance(value, dict):  # a library's own `values` may load what it names
        return [t for part in dict.values(value) for t in tensors_in(part, depth - 1)]
    return []


def left_in(value: Any) -> list[Tensor]:
    """The tensors without storage in `value`: a trace has left them."""
    return [t for t in tensors_in(value) if t.is_meta]


class Containers:
    """The containers that a walk has entered, as they were."""

    def __init__(self, found: Reached) -> None:
        self.held = [
            _Container(name, value, value.copy())
            for name, value in zip(found.names, found.objects, strict=True)
            if type(value) in (list, dict, set, deque)
        ]
        for name, value in zip(found.names, found.objects, strict=True):
            attributes = getattr(value, "__dict__", None)
            if type(attributes) is dict and not isinstance(value, type):
                self.held.append(_Container(name, attributes, attributes.copy(), True))
            if isinstance(value, nn.Module):
                for tensors in (value._parameters, value._buffers):
                    self.held.append(_Container(name, tensors, tensors.copy(), True))
        self.places = [(p, v) for p, v in found.places if p.kind in ("cell", "class", "slot")]
        self.places += [(p, v) for p, v in found.places if p.kind == "item"]

    def look(self) -> None:
        """What is there now is what the next call begins with."""
        for container in self.held:
            container.content = container.value.copy()
        for i, (place, _) in enumerate(self.places):
            with contextlib.suppress(LookupError, AttributeError, ValueError):
                self.places[i] = place, place.get()

    def put_back(self) -> None:
        for container in self.held:
            container.put_back()
        for place, value in self.places:
            try:
                now = place.get()
            except (LookupError, AttributeError, ValueError):
                continue
            if now is not value and tensors_in(now):
                place.set(value)

    def left(self) -> dict[int, tuple[Tensor, str]]:
        """The tensors that a trace has left in places, by identity, with their places' names."""
        found: dict[int, tuple[Tensor, str]] = {}
        for container in self.held:
            for key, value in container.now().items():
                for tensor in left_in(value):
                    found[id(tensor)] = tensor, container.place(key)
        for place, _ in self.places:
            try:
                now = place.get()
            except (LookupError, AttributeError, ValueError):
                continue
            for tensor in left_in(now):
                found[id(tensor)] = tensor, place.name
        return found

    def grown(self) -> list[tuple[str, Any, Any]]:
        """Lists and deques to which a trace has added tensors: name, list, the last of them."""
        return [
            (c.said, c.value, news[-1])
            for c in self.held
            if isinstance(c.value, (list, deque))
            and len(c.value) > len(c.content)
            and (news := c.news())
        ]

    def grow(self) -> list[str]:
        """Let the lists that grow be as long as after many calls; their names."""
        found = self.grown()
        for _, value, last in found:
            value.extend([last] * _MANY)
        return [name for name, _, _ in found]

"""Containers with tensors in them: each tensor by the positions and keys that lead to it; and the
lists, dicts, deques and attributes around the traced code, put back where tensors came in.

A call leaves tensors behind: a loss in a list of losses, features that a hook notes. Those of a
trace would have no content afterwards.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from tallystick.program.capture.batch import Batch
from tallystick.program.capture.places import Reached, within

_DEPTH = 4
DICTS: tuple[type, ...] = (dict, Batch)
Path = tuple[Any, ...]


def parts(value: Any, path: Path = (), tuples_only: bool = False) -> Iterator[tuple[Path, Tensor]]:
    """The tensors of a value: itself, or those in its tuples, and in its lists and dicts."""
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, tuple) or (type(value) is list and not tuples_only):
        inside = enumerate(value)
    elif type(value) in DICTS and not tuples_only:
        inside = ((key, part) for key, part in value.items() if isinstance(key, str))
    if len(path) < _DEPTH:
        for key, part in inside:
            yield from parts(part, (*path, key), tuples_only)


def with_part(held: Any, path: Path, tensor: Tensor) -> Any:
    """`held` with `tensor` in it: a list or dict is changed in place, as others may hold it too."""
    if not path:
        return tensor
    part = with_part(held[path[0]], path[1:], tensor)
    if isinstance(held, tuple):
        return _tuple_as(held, [*held[: path[0]], part, *held[path[0] + 1 :]])
    held[path[0]] = part
    return held


def copied(held: Any) -> Any:
    """Containers of their own around the same tensors."""
    if isinstance(held, tuple):
        return _tuple_as(held, list(map(copied, held)))
    if type(held) is list:
        return list(map(copied, held))
    if type(held) in DICTS:
        return type(held)({k: copied(v) for k, v in held.items()})
    return held


def _tuple_as(like: Any, items: list[Any]) -> Any:
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)


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

"""What Python keeps between the steps of a walk (PROGRAM 5.25), as it is before each of them.

A run computes its steps without Python: the live objects stay as they were before the training. A
hook, a callback or a listener would find them so in every step, and what it resets would look as if
nothing had changed. So the walk writes down what moves, and each moment can be put into the live
places, and the last one stays there.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from tallystick.program.capture.content import Back, content_of
from tallystick.program.capture.looks import PLAIN, Relay, look_of
from tallystick.program.capture.outside import GONE, UNKNOWN
from tallystick.program.capture.places import KeptPlace, Reached
from tallystick.program.capture.recorded import plain

Through = Callable[[Any], Any]
Key = tuple[int, str, Any]
_ABSENT = (LookupError, AttributeError, ValueError)


@dataclass(frozen=True, eq=False)
class _Shape:
    """In the place of a tensor of a trace, which has no numbers."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: set[int] = field(default_factory=set)  # not empty where a later call has made it again


@dataclass(frozen=True, eq=False)
class _Parts:
    """A tuple with such tensors."""

    kind: type
    parts: list[Any]


def _items(held: Any) -> list[Any]:
    """The content of a list, deque, dict or set."""
    if isinstance(held, dict):
        return [(key, dict.__getitem__(held, key)) for key in dict.keys(held)]
    return list(held)


def _fill(held: Any, keep: int, tail: list[Any]) -> None:
    """The first `keep` items of a container stay, `tail` follows."""
    if isinstance(held, list):
        held[keep:] = tail
        return
    items = [*_items(held)[:keep], *tail]
    held.clear()
    if isinstance(held, deque):
        held.extend(items)
    else:
        held.update(items)


def _same(one: Any, two: Any) -> bool:
    if one is two:
        return True
    if type(one) is tuple and type(two) is tuple and len(one) == len(two) == 2:
        return _same(one[0], two[0]) and _same(one[1], two[1])  # an item of a dict
    return type(one) is type(two) and isinstance(one, PLAIN) and repr(one) == repr(two)


def _is_container(value: Any) -> bool:
    return isinstance(value, (list, deque, dict, set))


def _key(place: KeptPlace) -> Key:
    return id(place.holder), place.kind, place.key


@dataclass(frozen=True)
class _Change:
    """One thing that a step has changed: a place, the items of a container, or what else an object
    holds."""

    of: Any
    value: Any = None
    keep: int = 0


@dataclass
class Moments:
    """The changes of each step, to be put one after the other."""

    changes: list[list[_Change]] = field(default_factory=list)
    drawn: list[tuple[Any, Any]] = field(default_factory=list)
    iterators: list[tuple[KeptPlace, int]] = field(default_factory=list)
    _places: dict[Key, tuple[KeptPlace, Any]] = field(default_factory=dict)
    _containers: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    _others: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    _shapes: dict[int, tuple[Tensor, _Shape]] = field(default_factory=dict)

    def add(self, found: Reached) -> None:
        """What is reached now, before the next step or after the last."""
        first = not self.changes
        self._shapes = {}
        with torch._C.DisableTorchFunction():
            made = [*self._of_places(found), *self._of_containers(found), *self._of_others(found)]
        self.changes.append([] if first else made)
        self.drawn = [*self.drawn[:1], (random.getstate(), np.random.get_state())]

    def read(self, tensors: Iterable[Tensor]) -> None:
        """The last step has made again what the one before it has left."""
        for tensor in tensors:
            known = self._shapes.get(id(tensor))
            if known is not None:
                known[1].read.add(1)

    def end(self, relays: list[tuple[KeptPlace, Relay, Any]]) -> None:
        """No more is added."""
        self.iterators = [
            (place, relay.position) for place, relay, _ in relays
            if any(v is relay for p, v in self._places.values() if _key(p) == _key(place))
            or any(relay is item for _, items in self._containers.values() for item in items)
        ]  # fmt: skip
        self._places, self._containers, self._others, self._shapes = {}, {}, {}, {}

    @property
    def moves(self) -> bool:
        return any(self.changes)

    def _of_places(self, found: Reached) -> Iterator[_Change]:
        inside = {id(value) for value in found.objects if _is_container(value)}
        now = {
            _key(place): (place, plain(value)) for place, value in found.places
            if id(place.holder) not in inside and _is_hashable(place.key)
        }  # fmt: skip
        for key, (place, value) in now.items():
            before = self._places.get(key)
            if before is None or not _same(before[1], value):
                yield _Change(place, self._stored(value))
        for key, (place, value) in self._places.items():
            if key not in now and value is not GONE:
                try:
                    value = place.get()
                except _ABSENT:
                    value = GONE
                    yield _Change(place, GONE)
                now[key] = place, value
        self._places = now

    def _of_containers(self, found: Reached) -> Iterator[_Change]:
        for value in found.objects:
            if not _is_container(value):
                continue
            items = _items(value)
            before = self._containers.get(id(value), (value, []))[1]
            keep = 0
            if not isinstance(value, set):
                while keep < min(len(before), len(items)) and _same(before[keep], items[keep]):
                    keep += 1
            elif value == set(before):
                continue
            if keep < max(len(before), len(items)) or id(value) not in self._containers:
                yield _Change(value, [self._stored(item) for item in items[keep:]], keep)
            self._containers[id(value)] = value, items

    def _of_others(self, found: Reached) -> Iterator[_Change]:
        for value in (*found.objects, *(v for _, v in found.places)):
            if not _is_other(value):
                continue
            look = dict(value) if isinstance(value, os._Environ) else look_of(value)
            before = self._others.get(id(value))
            if before is None or before[1] != look:
                self._others[id(value)] = value, look
                back = content_of(value)
                if back is not None:
                    yield _Change(value, back)

    def _stored(self, value: Any) -> Any:
        """A value without what a trace has made."""
        value = plain(value)
        if isinstance(value, Tensor):
            if not value.is_meta:
                return value
            known = self._shapes.get(id(value))
            if known is None:
                known = value, _Shape(tuple(value.shape), value.dtype)
                self._shapes[id(value)] = known
            return known[1]
        if isinstance(value, tuple):
            parts = [self._stored(part) for part in value]
            if any(isinstance(part, (_Shape, _Parts)) for part in parts):
                return _Parts(type(value), parts)
        return value


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def _is_other(value: Any) -> bool:
    """Whether an object has a content that is neither attributes nor items."""
    if isinstance(value, (*PLAIN, Tensor, Relay, type)) or _is_container(value):
        return False
    if hasattr(value, "cache_info") and hasattr(value, "cache_clear"):
        return False
    return _KINDS.setdefault(type(value), content_of(value) is not None)


_KINDS: dict[type, bool] = {}


def _told(state: Any) -> Any:
    """A state of numpy's generator, comparable."""
    return state[1].tobytes(), state[2:]


def _itself(value: Any) -> Any:
    return value


class Live:
    """Puts moments into the live places, or by `through` into their copies."""

    def __init__(self, moments: Moments, through: Through = _itself) -> None:
        self._moments, self._through = moments, through
        self._at: int | None = None
        self._first: dict[int, tuple[Any, Back]] = {}
        self._made: WeakValueDictionary[int, Tensor] = WeakValueDictionary()  # by its marker

    def put(self, step: int) -> None:
        """As before training step `step`, or after the last."""
        step = min(step, len(self._moments.changes) - 1)
        if self._at is not None and step < self._at:
            self.restore()
        if self._at is None:
            self._begin()
            self._at = 0
        for at in range(self._at + 1, step + 1):
            for change in self._moments.changes[at]:
                self._apply(change)
        self._at = step

    def restore(self) -> None:
        """As before the first `put`."""
        if self._at is None:
            return
        self._at = None
        for _, back in self._first.values():
            with contextlib.suppress(*_ABSENT, TypeError):
                back()

    def finish(self) -> None:
        """As after the last step."""
        moments = self._moments
        self.put(len(moments.changes) - 1)
        for place, position in moments.iterators:
            with contextlib.suppress(*_ABSENT, TypeError, StopIteration):
                for _ in range(position):
                    next(place.get())
        if moments.drawn[0][0] != moments.drawn[-1][0]:
            random.setstate(moments.drawn[-1][0])
        if _told(moments.drawn[0][1]) != _told(moments.drawn[-1][1]):
            np.random.set_state(moments.drawn[-1][1])

    def settle(self) -> None:
        """After `finish`: where a tensor without numbers is left, it is as before the first `put`
        if no step has read it. What one has made again stays, and no later capture may read it."""
        read = {
            _name_of(self._of(change.of))
            for changes in self._moments.changes for change in changes if _was_read(change.value)
        }  # fmt: skip
        for of, back in self._first.values():
            made = self._made_in(of)
            if made and _name_of(of) in read:
                for tensor in made:
                    UNKNOWN[id(tensor)] = tensor
            elif made:
                with contextlib.suppress(*_ABSENT, TypeError):
                    back()

    # -- one change --------------------------------------------------------------------------------
    def _begin(self) -> None:
        self._first = {}
        seen: set[Any] = set()
        for change in (c for changes in self._moments.changes for c in changes):
            of = self._of(change.of)
            key = _name_of(of)
            if key not in seen:
                seen.add(key)
                back = _back_of(of)
                if back is not None:
                    self._first[len(self._first)] = of, back

    def _of(self, of: Any) -> Any:
        if not isinstance(of, KeptPlace):
            return self._through(of)
        holder = self._through(of.holder)
        return of if holder is of.holder else KeptPlace(of.name, holder, of.key, of.kind, of.path)

    def _apply(self, change: _Change) -> None:
        of = self._of(change.of)
        with contextlib.suppress(*_ABSENT, TypeError):
            if isinstance(of, KeptPlace):
                if change.value is GONE:
                    _remove(of)
                elif not isinstance(change.value, Relay):
                    of.set(self._value(change.value))
            elif _is_container(of):
                _fill(of, change.keep, [self._item(of, item) for item in change.value])
            elif of is change.of:
                change.value()

    def _item(self, of: Any, item: Any) -> Any:
        if isinstance(of, dict) and not isinstance(item, _Parts):
            return item[0], self._value(item[1])
        return self._value(item)

    def _value(self, value: Any) -> Any:
        if isinstance(value, _Shape):
            known = self._made.get(id(value))
            if known is None:
                known = torch.zeros(value.shape, dtype=value.dtype)
                self._made[id(value)] = known
            return known
        if isinstance(value, _Parts):
            parts = [self._value(part) for part in value.parts]
            named = hasattr(value.kind, "_fields")
            return value.kind(*parts) if named else value.kind(parts)
        return self._through(value)

    def _made_in(self, of: Any) -> list[Tensor]:
        """The tensors without numbers in a place or a container."""
        made = {id(tensor): tensor for tensor in self._made.values()}

        def parts(value: Any) -> Iterator[Tensor]:
            if isinstance(value, tuple):
                for part in value:
                    yield from parts(part)
            elif id(value) in made:
                yield made[id(value)]

        try:
            held = (of.get(),) if isinstance(of, KeptPlace) else tuple(_items(of))
        except (*_ABSENT, TypeError):
            return []
        return list(parts(held))


def _name_of(of: Any) -> Any:
    return _key(of) if isinstance(of, KeptPlace) else id(of)


def _was_read(value: Any) -> bool:
    """Whether a later call has made a tensor of a value again."""
    if isinstance(value, _Shape):
        return bool(value.read)
    if isinstance(value, _Parts):
        return any(map(_was_read, value.parts))
    return isinstance(value, (tuple, list)) and any(map(_was_read, value))


def _back_of(of: Any) -> Back | None:
    """What puts the present content back."""
    if not isinstance(of, KeptPlace):
        if not _is_container(of):
            return content_of(of)
        items = _items(of)
        return lambda: _fill(of, 0, items)
    try:
        value = of.get()
    except _ABSENT:
        return lambda: _remove(of)
    return lambda: of.set(value)


def _remove(place: KeptPlace) -> None:
    """Nothing is in the place any more."""
    holder: Any = place.holder
    if place.kind == "cell":
        del holder.cell_contents
    elif place.kind == "item":
        del holder[place.key]
    elif place.kind == "attribute":
        held: Mapping[str, Any] = vars(holder)
        del held[place.key]  # type: ignore[attr-defined]
    else:
        delattr(holder, place.key)

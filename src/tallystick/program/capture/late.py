"""Places that hold no tensor before the training, and one after a call; and buffers that a forward
pass makes or removes (PROGRAM 5.20 g).

A hidden state is None at first. Where each step is traced by itself (PROGRAM 5.25), it is known
which steps find a tensor there: only those read the slot. The others leave the place as it is, so
the zeros with which the slot begins reach no result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.errors import MovingStateError, UsageError
from tallystick.program.capture.containers import Path, copied, parts
from tallystick.program.capture.outside import GONE, KeptTensor, OneObject, Spot, put_part
from tallystick.program.capture.places import KeptPlace, Reached, joined, reached_from, within


@dataclass(eq=False)
class Late(KeptTensor):
    """A tensor that a call puts in a place that held none. `tensor` has zeros.

    `paths` are those of all tensors in the place. `end` is what the place holds after the last
    step, if tensors.
    """

    paths: frozenset[Path] = frozenset()
    end: Any = None

    @property
    def place_path(self) -> str:
        return self.spots[0].place.path

    @property
    def by_object(self) -> bool:
        return False

    def _held(self) -> dict[Path, Tensor]:
        """The tensors in the place now. Raises UsageError for others than after the first call."""
        try:
            found = dict(parts(self.spots[0].place.get()))
        except (LookupError, AttributeError, ValueError):
            return {}
        if found and found.keys() != self.paths:
            raise self.refusal(
                "stands in another form after a later call",
                "Keep as many tensors there, in tuples or lists of the same lengths.",
            )
        return found

    def look(self) -> None:
        """What is there before the first step stays known: it is put back."""

    def put(self, seen: Tensor) -> None:
        """In the place of the tensor that the call before has left, if it has left one; and in all
        others that hold this object. Where another slot stands for it already, that one stays: the
        state has the same values in both."""
        self.seen = seen
        if held := self._held():
            if self.objects is not None:
                self.seen = self.objects.put(held[self.spots[0].path], seen)
            self._set(self.seen)

    def _set(self, tensor: Tensor) -> None:
        put_part(self.spots[0].place, self.spots[0].path, tensor)

    def values(self, seen: Tensor) -> list[Any]:
        """What the call has left. Where that is no tensor, the next call reads none: the slot keeps
        what it had."""
        found = self._held()
        return [found[self.spots[0].path]] if found else [seen]

    def replaced(self) -> list[bool]:
        return [self.seen is not None and self.values(self.seen)[0] is not self.seen]

    def note_graph(self, value: Tensor) -> None:
        """Of each call by itself, since each step has a trace of its own."""
        self.graph = value.requires_grad

    def end_call(self) -> None:
        """What a call has left stays: it tells the next one that there is a tensor."""
        self.seen = None
        if self.objects is not None:
            self.objects.end_call()

    def finish(self) -> None:
        """After the last step."""
        held = self._held()
        self.end = copied(self.spots[0].place.get()) if held else None

    def load(self, content: Tensor) -> None:
        """Where the training ends with tensors in the place; one object in several stays one."""
        if self.end is None:
            return
        if self.objects is not None:
            content = self.objects.loaded(dict(parts(self.end))[self.spots[0].path], content)
        with contextlib.suppress(LookupError, AttributeError, ValueError):
            if not self._held():
                self.spots[0].place.set(copied(self.end))
            self._set(content)


@dataclass(frozen=True)
class Start:
    """What is reached before the first step, and is put back after the last."""

    found: Reached
    objects: set[int] = field(default_factory=set)
    places: dict[tuple[int, str, str], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Reached) -> Start:
        made = cls(found, {id(value) for value in found.objects})
        made.places.update({_key(place): value for place, value in found.places})
        made.objects.update(id(place.holder) for place, _ in found.places)
        return made

    def has(self, place: KeptPlace) -> bool:
        """Whether a place is there in every run of the steps, and `PythonState` empties it."""
        if _key(place) in self.places:
            return True
        variable = place.kind in ("cell", "slot") or (
            isinstance(place.holder, dict) and "__name__" in place.holder
        )
        return id(place.holder) in self.objects and not variable


def _key(place: KeptPlace) -> tuple[int, str, str]:
    return id(place.holder), str(place.key), place.kind


def late_of(
    tensor: Tensor,
    objects: OneObject,
    start: Start,
    known: set[str],
    taken: set[str],
) -> list[Late]:
    """All tensors of the first place that holds `tensor` and held none before the first step; none
    where no such place is. Those at the paths of `known` are passed by; names of slots in `taken`
    are not given again."""
    for place, value in reached_from(objects.roots).places:
        found = dict(parts(value))
        if not any(t is tensor for t in found.values()) or id(value) in start.objects:
            continue
        first = start.places.get(_key(place), GONE)
        if place.path not in known and start.has(place) and not dict(parts(first)):
            paths = frozenset(found)
            made = [_late(place, path, t, first, paths, taken) for path, t in found.items()]
            for one in made:
                one.objects = objects
            return made
    return []


def _late(
    place: KeptPlace,
    path: Path,
    tensor: Tensor,
    first: Any,
    paths: frozenset[Path],
    taken: set[str],
) -> Late:
    name, said = place.path, place.name
    for key in path:
        name, said = joined(name, key), within(said, f"[{key!r}]")
    once, number = name, 2
    while name and name in taken:
        name, number = f"{once}.{number}", number + 1
    taken.add(name)
    zeros = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
    return Late(name, said, zeros, [_LateSpot(place, path, first)], None, paths=paths)


@dataclass(eq=False)
class _LateSpot(Spot):
    """Its `first` is what the place held before the first step; `GONE` where it was not there."""

    def put_back(self) -> None:
        if self.first is not GONE:
            super().put_back()


def empty_buffers(module: nn.Module) -> frozenset[str]:
    """The names of buffers that are registered and hold None."""
    return frozenset(
        f"{path}.{name}" if path else name
        for path, child in module.named_modules()
        for name, tensor in child._buffers.items()
        if tensor is None
    )


def check_buffers(
    found: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    empty: frozenset[str],
    filled: frozenset[str],
) -> None:
    """Raises UsageError where the forward pass made or removed a buffer. Those of `filled` may get
    a tensor; those of `empty` might where each step is traced by itself."""
    for name in sorted((set(found) ^ set(wanted)) - filled):
        if name in empty:
            raise MovingStateError(
                f"The model fills the buffer {name}, which holds None, while it runs.",
                "Give it a tensor before the training (torch.zeros for none).",
            )
        what = "removes" if name in wanted else "makes"
        raise UsageError(
            f"The model {what} the buffer {name} while it runs.",
            "Buffers are state: register each in the module's constructor.",
        )

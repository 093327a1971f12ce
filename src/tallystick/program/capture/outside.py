"""Tensors that traced code keeps outside of the module's state: found, named, looked at, put back.

A tensor in a closure, a global name, an attribute or a container may change from call to call. A
program has no such memory: what changes becomes a slot of the state (PROGRAM 5.20). Three things
tell that it changed: another object in its place, a change in place, and its content.

One tensor that several places hold stays one object, call after call (5.20 g).
A call gets the slots' tensors in the places where the call before has left its own. Code may ask
whether two places hold the same object (`is`, `in` of a list). So what stands for one object goes
into every place that holds it, whether that place is a slot or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture.constants import MOST_ELEMENTS, has_content, untraced
from tallystick.program.capture.containers import Containers, Path, parts, with_part
from tallystick.program.capture.places import KeptPlace, reached_from
from tallystick.program.capture.schema import type_of_tensor


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


OUTSIDE = "outside."
GONE = object()
# Tensors that a training has left and whose numbers are not known (PROGRAM 5.25 c).
UNKNOWN: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


class KeptError(UsageError):
    """A refusal of what is kept outside."""

    kept: KeptTensor


@dataclass(eq=False)
class Spot:
    """Where a tensor is: a place, and the positions in tuples there. `first` is what the place held
    before a call."""

    place: KeptPlace
    path: tuple[int, ...]
    first: Any

    @property
    def name(self) -> str:
        """The path of PROGRAM 5.20; "" where none is."""
        parts = [str(i) for i in self.path]
        if self.place.key == "__defaults__":
            code = self.place.holder.__code__
            names = code.co_varnames[: code.co_argcount][-len(self.first) :]
            parts[0] = names[self.path[0]]
        return ".".join([self.place.path, *parts]) if self.place.path else ""

    def now(self) -> Any:
        """What is there; `GONE` where the place or its tuple is no more what it was."""
        try:
            value = self.place.get()
            for i in self.path:
                value = value[i]
        except (LookupError, AttributeError, ValueError, TypeError):
            return GONE
        return value

    def look(self) -> None:
        """What is there now is what the next call begins with."""
        with contextlib.suppress(LookupError, AttributeError, ValueError):
            self.first = self.place.get()

    def set(self, tensor: Tensor) -> None:
        """Put `tensor` there, in a tuple of the same form."""
        self.place.set(with_part(self.place.get(), self.path, tensor))

    def put_back(self) -> None:
        with contextlib.suppress(LookupError, AttributeError, ValueError):
            if self.place.get() is not self.first:
                self.place.set(self.first)


def storage_of(tensor: Tensor) -> int:
    """The identity of a tensor's memory."""
    return int(tensor.untyped_storage()._cdata)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


@dataclass(eq=False)
class KeptTensor:
    """One tensor that is kept outside: its slot's name, where it is, and its content at first.

    `in_place` says that the code changes the object itself, so that every reference sees it.
    `graph` says that what stays there carries the graph of its call.
    """

    name: str
    said: str
    tensor: Tensor
    spots: list[Spot]
    content: Tensor | None
    in_place: bool = False
    graph: bool = False
    elsewhere: bool = False  # its content changed although a slot stood in its places
    seen: Tensor | None = None  # what stands in its places during a call
    # What the call before has left in its places; with `objects` the next one finds one object
    # wherever that has left one.
    left: Tensor | None = None
    objects: OneObject | None = field(default=None, repr=False)

    @property
    def slot(self) -> str:
        return OUTSIDE + self.name

    @property
    def by_object(self) -> bool:
        """Whether every reference to the object means the slot, in whatever place."""
        large = self.tensor.numel() > MOST_ELEMENTS or self.tensor.requires_grad
        return self.in_place or large

    def changed(self) -> bool:
        """Whether its content is another one than at first."""
        if self.content is None:
            return False
        with untraced(), torch.no_grad():
            return not torch.equal(_bits(self.tensor), _bits(self.content))

    def look(self) -> None:
        """What is kept now is what the next call begins with."""
        for spot in self.spots:
            spot.look()
        self.content = _copy(self.tensor)

    def put_back(self) -> None:
        """The places and the content as they were."""
        self.left = None
        for spot in self.spots:
            spot.put_back()
        if self.changed():
            self.write(self.content)

    def write(self, content: Any) -> None:
        """Other content into the object itself, as no change that autograd counts."""
        with untraced(), torch.no_grad():
            self.tensor.data.copy_(content)

    def load(self, content: Tensor) -> None:
        """`content` where the code keeps it: in the object, or a new one in its places."""
        if self.in_place or isinstance(self.tensor, nn.Parameter):
            self.write(content)
            return
        for spot in self.spots:
            spot.set(content)

    def put(self, seen: Tensor) -> None:
        """`seen` in its places, for a call."""
        if self.objects is not None and self.left is not None and not self.in_place:
            seen = self.objects.put(self.left, seen)
        for spot in self.spots:
            spot.set(seen)
        self.seen = seen

    def values(self, seen: Tensor) -> list[Any]:
        """What a call has left in its places, each object once; `seen` was there."""
        found = {id(now): now for now in (spot.now() for spot in self.spots)}
        return list(found.values()) or [seen]

    def note_graph(self, value: Tensor) -> None:
        """`value` stays there after a call."""
        self.graph = self.graph or (value.requires_grad and not self.tensor.requires_grad)

    def end_call(self) -> None:
        """Its own tensor in its places again."""
        values, left = [] if self.seen is None else self.values(self.seen), self.left
        if len(values) == 1 and isinstance(values[0], Tensor) and values[0].is_meta:
            left = values[0]  # of a trace: a call on real values tells nothing
        self.elsewhere, self.seen = self.changed(), None
        self.put_back()
        self.left = left
        if self.objects is not None:
            self.objects.end_call()

    def replaced(self) -> list[bool]:
        """Of each place, whether a call has put something else there."""
        return [self.seen is not None and spot.now() is not self.seen for spot in self.spots]

    def refusal(self, what: str, action: str, where: str = "") -> UsageError:
        error = KeptError(f"{self.said}, a tensor outside of the module, {what}{where}.", action)
        error.kept = self
        return error


@dataclass
class Outside:
    """Every tensor that code reached from `run` and `module` keeps, but the module's own."""

    kept: list[KeptTensor]
    own: dict[int, str]  # the module's parameters and buffers by storage
    containers: Containers
    # What a trace has changed in place: storages, and the lines.
    written: dict[int, str] = field(default_factory=dict)
    # What the last trace has left in places that are no slots, with their names.
    left: dict[int, tuple[Tensor, str]] = field(default_factory=dict)
    # The memory of what the last trace had as constants.
    constants: set[int] = field(default_factory=set)
    # The memory of what the last trace refused as a constant.
    beyond: set[int] = field(default_factory=set)
    # Which of those left a later trace has read: the place's name, and the line.
    stale: tuple[str, str] | None = None
    # What an evaluation changes and computes nothing from: put back after each trace.
    unread: list[KeptTensor] = field(default_factory=list)
    # Slots that see one memory after a call, slots that do within one, and those that a call has
    # changed in place: of all traces so far.
    together: list[frozenset[str]] = field(default_factory=list)
    flows: list[frozenset[str]] = field(default_factory=list)
    mutated: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, module: nn.Module, run: Callable[..., Any]) -> Outside:
        found = reached_from({"loss": run, "module": module})
        own = dict(module.named_parameters()) | dict(module.named_buffers())
        mine = {id(t) for t in own.values()}
        by_tensor: dict[int, list[Spot]] = {}
        held: dict[int, Tensor] = {}
        for place, value in found.places:
            for path, tensor in parts(value, tuples_only=True):
                if UNKNOWN.get(id(tensor)) is tensor:
                    raise UsageError(
                        f"{place.name} is a tensor that the steps of an earlier training have "
                        "made, each from the one before, and no state of that run holds its "
                        "numbers.",
                        "Set it to what the next training begins with.",
                    )
                if has_content(tensor) and id(tensor) not in mine and _is_plain(tensor):
                    held[id(tensor)] = tensor
                    by_tensor.setdefault(id(tensor), []).append(Spot(place, path, value))
        made = cls([], {storage_of(t): n for n, t in own.items()}, Containers(found))
        taken = {k.removeprefix(OUTSIDE) for k in own if k.startswith(OUTSIDE)}
        for key, spots in by_tensor.items():
            made.kept.append(_kept(held[key], spots, taken))
        return made

    def no_constants(self, carried: list[KeptTensor]) -> list[KeptTensor]:
        """Where a trace met one: all beyond `carried` that are too large for a constant, or have a
        gradient."""
        if not any(storage_of(k.tensor) in self.beyond for k in self.kept if k not in carried):
            return []
        return [k for k in self.kept if k.by_object and k.name and k not in carried]

    def changes(self, carried: list[KeptTensor]) -> list[KeptTensor]:
        """What the last trace has changed beyond `carried`, each with the places of one slot."""
        found: list[KeptTensor] = []
        for kept in [k for k in self.kept if k not in carried]:
            values = {id(now): now for now in (s.now() for s in kept.spots)}
            kept.in_place = storage_of(kept.tensor) in self.written or kept.changed()
            if storage_of(kept.tensor) in self.own:
                kept.in_place = False  # a view of the state changes with it
            if not kept.in_place and list(values) == [id(kept.tensor)]:
                continue
            if len(values) > 1:
                if kept.in_place:
                    raise kept.refusal(
                        "is changed in place, and one of the places that hold it gets another "
                        "tensor",
                        "Keep it in one place, or give each a tensor of its own (clone()).",
                        self.written.get(storage_of(kept.tensor), ""),
                    )
                found += [k for k in self._split(kept) if k.spots[0].now() is not k.tensor]
            else:
                found.append(kept)
        return found

    def _split(self, kept: KeptTensor) -> list[KeptTensor]:
        """One tensor in several places that do not stay together, as a slot for each."""
        parts: dict[int, list[Spot]] = {}
        for spot in kept.spots:
            parts.setdefault(id(spot.now()), []).append(spot)
        at = self.kept.index(kept)
        taken = {k.name for k in self.kept if k is not kept}
        made = [_kept(kept.tensor, spots, taken) for spots in parts.values()]
        self.kept[at : at + 1] = made
        return made

    def take_over(self, known: list[KeptTensor]) -> list[KeptTensor]:
        """The slots of another walk, with the places of the same tensors here."""
        mine = {id(k.tensor): k for k in self.kept}
        for kept in known:
            kept.look()
            here = mine.get(id(kept.tensor))
            if here is not None and here is not kept and kept.by_object:
                places = {(id(s.place.holder), str(s.place.key), s.path) for s in kept.spots}
                kept.spots += [
                    s
                    for s in here.spots
                    if (id(s.place.holder), str(s.place.key), s.path) not in places
                ]
                self.kept[self.kept.index(here)] = kept
        self.kept += [k for k in known if k not in self.kept]
        return list(known)

    def look(self) -> None:
        """What is there now is what the next call begins with."""
        for kept in self.kept:
            kept.look()
        self.containers.look()

    def put_back(self) -> None:
        """Every place, container and content as before the first trace."""
        for kept in self.kept:
            kept.put_back()
        self.containers.put_back()
        self.written.clear()
        self.left = {}


@contextlib.contextmanager
def left_as_it_was(module: nn.Module, run: Callable[..., Any]) -> Iterator[None]:
    """What `run` keeps outside of the module is put back after the block, which calls it."""
    outside = Outside.of(module, run)
    try:
        yield
    finally:
        outside.put_back()


def _is_plain(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_quantized


def _kept(tensor: Tensor, spots: list[Spot], taken: set[str]) -> KeptTensor:
    """With a name that none in `taken` has, which gets it."""
    first = next((s.name for s in spots if s.name), "")
    name, number = first, 2
    while name and name in taken:
        name, number = f"{first}.{number}", number + 1
    taken.add(name)
    return KeptTensor(name, spots[0].place.name, tensor, spots, _copy(tensor))


def _copy(tensor: Tensor) -> Tensor | None:
    if tensor.device.type != "cpu":
        return None
    with torch.no_grad():
        return tensor.detach().clone()


def check_slot(kept: KeptTensor) -> None:
    """Raises UsageError unless the tensor can be a slot of the state."""
    if not kept.name:
        raise kept.refusal(
            "changes from call to call, and is reached through a set or by a key without a name",
            "Keep it in an attribute, a list or a dict whose keys are strings.",
        )
    if kept.tensor.device.type != "cpu":
        raise kept.refusal(
            f"changes from call to call, and is on {kept.tensor.device}",
            "Capture on the CPU: move it there (.cpu()), with the module.",
        )
    type_of_tensor(kept.tensor, kept.said)

"""Where the traced code keeps what it does not get as an argument: places that can be read and set.

A place is a cell of a closure, a global name, an attribute, an item of a container, or a default
argument. `places_of` follows functions, methods, objects and containers from the loss and the
module outwards, as far as their code names things. What belongs to torch, numpy or Python itself is
not entered.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tallystick.program.capture.looks import Relay
from tallystick.program.capture.source import PACKAGE, code_line, is_installed, is_model

DEPTH = 12
MOST_PLACES = 100_000
_LEAVES = (bool, int, float, complex, str, bytes, type(None), Tensor, np.ndarray, np.generic)
_TORCHS_OWN = frozenset(vars(nn.Module())) - {"training"}
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9_.:/-]")


@dataclass(
    eq=False, slots=True
)  # not frozen: that takes three times as long, and a walk makes thousands
class KeptPlace:
    """One place. `name` is for people: `it[0] in the closure of loss (train.py:12)`.

    `path` is for machines: the variable and the keys that lead to the place, joined by points, in
    the characters of PROGRAM 2.3. It is the same in every process; "" where none is, as in a set.
    """

    name: str
    holder: Any
    key: Any
    kind: str  # cell, item, attribute, slot, class
    path: str = ""

    def get(self) -> Any:
        """What is there. Raises LookupError, AttributeError or ValueError where nothing is."""
        if self.kind == "cell":
            return self.holder.cell_contents
        if self.kind == "item":  # past any `__getitem__` of a class of its own
            if isinstance(self.holder, dict):
                return dict.__getitem__(self.holder, self.key)
            return self.holder[self.key]
        if self.kind in ("attribute", "class"):  # past any `__get__` of a descriptor
            return vars(self.holder)[self.key]
        return getattr(self.holder, self.key)

    def set(self, value: Any) -> None:
        """Put `value` there, past any `__setattr__` of the holder's."""
        if self.kind == "cell":
            self.holder.cell_contents = value
        elif self.kind == "item":
            if isinstance(self.holder, OrderedDict):
                OrderedDict.__setitem__(self.holder, self.key, value)
            elif isinstance(self.holder, dict):
                dict.__setitem__(self.holder, self.key, value)
            else:
                self.holder[self.key] = value
        elif self.kind == "attribute":
            vars(self.holder)[self.key] = value
        else:
            setattr(self.holder, self.key, value)


@functools.lru_cache(maxsize=65536)
def _is_own(name: str) -> bool:
    """Whether a module of this name is neither torch's, numpy's, Python's nor ours."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if name == "__main__":
        return True
    if name.partition(".")[0] in ("torch", "numpy", "tallystick", "builtins"):
        return False
    return bool(file) and is_model(str(file))


@functools.lru_cache(maxsize=4096)
def _may_load(kind: type) -> bool:
    """Whether reading an item runs a library's code, which may import what the item names."""
    module = sys.modules.get(kind.__module__)
    file = str(getattr(module, "__file__", None) or "")
    return is_installed(file) and getattr(kind, "__getitem__", None) is not dict.__getitem__


# By identity, since a code object's hash reads all its content. The code is held, so that no other
# one gets its identity.
_named: dict[int, tuple[types.CodeType, frozenset[str]]] = {}
_MOST_NAMED = 65_536


def names_in(code: types.CodeType) -> frozenset[str]:
    """The names of globals and attributes in a function's code, and in functions inside of it."""
    known = _named.get(id(code))
    if known is not None:
        return known[1]
    inner = (names_in(c) for c in code.co_consts if isinstance(c, types.CodeType))
    found = frozenset(code.co_names).union(*inner)
    if len(_named) >= _MOST_NAMED:
        _named.clear()
    _named[id(code)] = code, found
    return found


def joined(path: str, key: Any) -> str:
    """The path of what stands under `key`; "" without one."""
    if not path or not isinstance(key, (str, int)):
        return ""
    return f"{path}.{_NOT_OF_A_NAME.sub('_', str(key)) or '_'}"


def within(name: str, part: str) -> str:
    """The name of a part: `it[0] in the closure of loss (train.py:12)`."""
    variable, closure, function = name.partition(" in the closure of ")
    return variable + part + closure + function


class _At(NamedTuple):
    """Where the walk is: a place's name, its path, and how deep it lies."""

    name: str
    path: str
    depth: int

    def item(self, key: Any, number: int | None = None) -> _At:
        """An item of a container; a key that has no name of its own counts by its number."""
        named = key if isinstance(key, (str, int)) else number
        part = f"[{key!r}]"[:80]
        return _At(within(self.name, part), joined(self.path, named), self.depth)

    def attribute(self, key: str) -> _At:
        return _At(within(self.name, f".{key}"), joined(self.path, key), self.depth)

    def owner(self) -> _At:
        """The object whose method this is."""
        return _At(
            self.name.rpartition(".")[0] or "self",
            self.path.rpartition(".")[0] or "self",
            self.depth,
        )

    def variable(self, name: str, said: str = "") -> _At:
        return _At(said or name, _NOT_OF_A_NAME.sub("_", name), self.depth)


class _Walk:
    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.kept: list[Any] = []  # no other object gets the identity of one that was seen
        self.names: list[str] = []  # theirs
        self.queue: deque[tuple[KeptPlace, int]] = deque()
        self.functions: list[types.FunctionType] = []  # those of the model, in order
        self.left: list[str] = []  # what the limits have cut off

    def from_(self, roots: Mapping[str, Any]) -> Iterator[tuple[KeptPlace, Any]]:
        holder = dict(roots)
        for name in holder:
            self.queue.append((KeptPlace(name, holder, name, "item", name), 0))
        found = 0
        while self.queue and found < MOST_PLACES:
            place, depth = self.queue.popleft()
            try:
                value = place.get()
            except Exception:  # a container of the person's may raise anything
                continue
            if place.holder is not holder:
                found += 1
                yield place, value
            if isinstance(value, _LEAVES) or id(value) in self.seen:
                continue
            if depth >= DEPTH:
                self.left.append(place.name)
                continue
            self._part(_At(place.name, place.path, depth + 1), value)

        self.left.extend(place.name for place, _ in self.queue)

    def _add(self, at: _At, holder: Any, key: Any, kind: str) -> None:
        self.queue.append((KeptPlace(at.name, holder, key, kind, at.path), at.depth))

    def _part(self, at: _At, part: Any) -> None:
        if not isinstance(part, _LEAVES) and id(part) not in self.seen:
            self.seen.add(id(part))
            self.kept.append(part)
            self.names.append(at.name)
            self._enter(at, part)

    def _enter(self, at: _At, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            self._function(value, at.depth)
        elif isinstance(value, types.MethodType):
            self._part(at.owner(), value.__self__)
            self._part(at, value.__func__)
        elif isinstance(value, functools.partial):
            self._part(at, value.func)
            self._part(at, value.args)
            for key in value.keywords:
                self._add(at.item(key), value.keywords, key, "item")
            self.kept.append(value.keywords)  # a dict of its own, whose content may change
            self.names.append(at.name)
        elif isinstance(value, Mapping) and _may_load(type(value)):
            return
        elif isinstance(value, Mapping) and hasattr(value, "__setitem__"):
            for number, key in enumerate(list(value)):
                self._add(at.item(key, number), value, key, "item")
            self._attributes(at, value)
        elif isinstance(value, (list, deque)):
            for i in range(len(value)):
                self._add(at.item(i), value, i, "item")
            self._attributes(at, value)
        elif isinstance(value, tuple):
            for i, part in enumerate(value):
                self._part(at.item(i), part)
        elif isinstance(value, (set, frozenset)):
            for part in value:
                self._part(_At(f"an item of {at.name}", "", at.depth), part)
        elif isinstance(value, type):
            if _is_own(value.__module__):
                self._class(value, at.depth)
        elif isinstance(value, (types.ModuleType, logging.Manager, Dataset, DataLoader, Relay)):
            return  # a module by the names of the code that uses it: `_function`
        else:
            self._attributes(at, value)

    def _attributes(self, at: _At, value: Any) -> None:
        kind = type(value)
        if isinstance(value, torch.optim.Optimizer):
            return
        held = getattr(value, "__dict__", None)
        skip = _TORCHS_OWN if isinstance(value, nn.Module) else frozenset[str]()
        if isinstance(held, dict):
            for key in list(held):
                if isinstance(key, str) and key not in skip:
                    self._add(at.attribute(key), value, key, "attribute")
        if isinstance(value, nn.Module):
            for tensors in (value._parameters, value._buffers):
                for key in tensors:
                    self._add(at.attribute(key), tensors, key, "item")
            for key, child in value._modules.items():
                self._part(at.attribute(key), child)
            self._hooks(at, value)
        for slot in getattr(kind, "__slots__", ()) if _is_own(kind.__module__) else ():
            if isinstance(slot, str) and not slot.startswith("__"):
                self._add(at.attribute(slot), value, slot, "slot")
        if _is_own(kind.__module__) and id(kind) not in self.seen:
            self.seen.add(id(kind))
            self.kept.append(kind)
            self.names.append(kind.__name__)
            self._class(kind, at.depth)

    def _hooks(self, at: _At, module: nn.Module) -> None:
        for key, held in vars(module).items():
            if "_hooks" in key and isinstance(held, dict):
                for number, hook in enumerate(held.values()):
                    name = f"a hook of {type(module).__name__}"
                    self._part(_At(name, joined(at.path, f"{key[1:]}.{number}"), at.depth), hook)

    def _class(self, kind: type, depth: int) -> None:
        for base in kind.__mro__:
            if not _is_own(base.__module__):
                continue
            at = _At(base.__name__, base.__name__, depth)
            for key, part in list(vars(base).items()):
                part = getattr(part, "__func__", part)
                if isinstance(part, property):
                    for function in (part.fget, part.fset):
                        if isinstance(function, types.FunctionType):
                            self._function(function, depth)
                elif isinstance(part, types.FunctionType):
                    self._function(part, depth)
                elif not (key.startswith("__") and key.endswith("__")):
                    self._add(at.attribute(key), base, key, "class")

    def _function(self, function: types.FunctionType, depth: int) -> None:
        if function.__code__.co_filename.startswith(PACKAGE):
            # A wrapper of ours around the person's function, method or object.
            for name, cell in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            ):
                inner = cell.cell_contents
                if callable(inner) or _is_own(type(inner).__module__):
                    self._part(_At(name, name, depth), inner)
            return
        if not is_model(function.__code__.co_filename):
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is not None:
                self._enter(_At("wrapped", "wrapped", depth), wrapped)
            if not function.__closure__ or not _is_own(function.__module__ or ""):
                return
        if id(function.__code__) in self.seen and not function.__closure__:
            return
        self.seen.add(id(function.__code__))
        self.functions.append(function)
        code = function.__code__
        at = f"{code.co_name} ({code_line(code)})"
        here = _At(code.co_name, code.co_name, depth)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._add(here.variable(name, f"{name} in the closure of {at}"), cell, None, "cell")
        own = here.variable(code.co_name)
        for key in vars(function):
            self._add(own.attribute(key), function, key, "attribute")
        if function.__defaults__:
            said = _At(f"a default of {at}", own.path, depth)
            self._add(said, function, "__defaults__", "slot")
        for key in function.__kwdefaults__ or ():
            said = _At(f"default {key} of {at}", joined(own.path, key), depth)
            self._add(said, function.__kwdefaults__, key, "item")
        self._globals(function, here)

    def _globals(self, function: types.FunctionType, here: _At) -> None:
        names = names_in(function.__code__)
        library = is_installed(function.__code__.co_filename)
        held = function.__globals__
        for key in sorted([name for name in names if name in held]):
            part = held[key]
            if library and not isinstance(part, (*_LEAVES, list, dict, deque)):
                continue  # a library's own functions and classes: thousands
            if isinstance(part, types.ModuleType):
                if _is_own(part.__name__):
                    for inner in sorted([name for name in names if name in vars(part)]):
                        at = here.variable(key).attribute(inner)
                        self._add(at, vars(part), inner, "item")
            elif not isinstance(part, type) or _is_own(part.__module__):
                at = here.variable(key, f"the global {key}")
                self._add(at, held, key, "item")


@dataclass(frozen=True)
class Reached:
    """What is reached from some roots: places with what is there, objects with their names, what
    was left out, and the functions with code of the model's.

    `left` names the places beyond `MOST_PLACES` and those at `DEPTH`, whose insides are not known.
    """

    places: list[tuple[KeptPlace, Any]]
    objects: list[Any]
    left: list[str]
    names: list[str]
    functions: list[types.FunctionType] = field(default_factory=list)


def reached_from(roots: Mapping[str, Any], past: Sequence[Any] = ()) -> Reached:
    """Everything that is reached from `roots` (an object by its name), the nearest first; what the
    objects `past` hold is left out."""
    walk = _Walk()
    walk.seen.update(map(id, past))
    places = list(walk.from_(roots))
    return Reached(places, walk.kept, walk.left, walk.names, walk.functions)


def functions_of(roots: Mapping[str, Any]) -> list[types.FunctionType]:
    """Every function with code of the model's that is reached from `roots`."""
    walk = _Walk()
    for _ in walk.from_(roots):
        pass
    return walk.functions


def places_of(roots: Mapping[str, Any]) -> list[tuple[KeptPlace, Any]]:
    """The places of `reached_from`: at most `MOST_PLACES`, none deeper than `DEPTH`."""
    return reached_from(roots).places

"""Where the traced code keeps what it does not get as an argument: places that can be read and set.

A place is a cell of a closure, a global name, an attribute, an item of a container, or a default
argument. `places_of` follows functions, methods, objects and containers from the loss and the
module outwards, as far as their code names things. What belongs to torch, numpy or Python itself is
not entered, and neither are the module's parameters and buffers, which are state.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.program.capture.source import is_installed, is_model, line_of

DEPTH = 12
MOST_PLACES = 100_000
_LEAVES = (bool, int, float, complex, str, bytes, type(None), Tensor, np.ndarray, np.generic)
_TORCHS_OWN = frozenset(vars(nn.Module())) - {"training"}


@dataclass(frozen=True, eq=False)
class Place:
    """One place. `name` is for people: `it[0] in the closure of loss (train.py:12)`."""

    name: str
    holder: Any
    key: Any
    kind: str  # cell, item, attribute, slot, class

    def get(self) -> Any:
        """What is there. Raises LookupError, AttributeError or ValueError where nothing is."""
        if self.kind == "cell":
            return self.holder.cell_contents
        if self.kind == "item":
            return self.holder[self.key]
        if self.kind == "attribute":
            return vars(self.holder)[self.key]
        return getattr(self.holder, self.key)

    def set(self, value: Any) -> None:
        """Put `value` there, past any `__setattr__` of the holder's."""
        if self.kind == "cell":
            self.holder.cell_contents = value
        elif self.kind == "item":
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


def _names(code: types.CodeType) -> set[str]:
    """The names of globals and attributes in a function's code, and in functions inside of it."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


class _Walk:
    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.kept: list[Any] = []  # no other object gets the identity of one that was seen
        self.queue: deque[tuple[Place, int]] = deque()
        self.functions: list[types.FunctionType] = []  # those of the model, in order

    def from_(self, roots: Mapping[str, Any]) -> Iterator[tuple[Place, Any]]:
        holder = dict(roots)
        for name in holder:
            self.queue.append((Place(name, holder, name, "item"), 0))
        found = 0
        while self.queue and found < MOST_PLACES:
            place, depth = self.queue.popleft()
            try:
                value = place.get()
            except (LookupError, AttributeError, ValueError):
                continue
            if place.holder is not holder:
                found += 1
                yield place, value
            if isinstance(value, _LEAVES) or id(value) in self.seen or depth >= DEPTH:
                continue
            self.seen.add(id(value))
            self.kept.append(value)
            self._enter(place.name, value, depth + 1)

    def _add(self, name: str, holder: Any, key: Any, kind: str, depth: int) -> None:
        self.queue.append((Place(name, holder, key, kind), depth))

    def _enter(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, types.FunctionType):
            self._function(value, depth)
        elif isinstance(value, types.MethodType):
            self._part(name.rpartition(".")[0] or "self", value.__self__, depth)
            self._part(name, value.__func__, depth)
        elif isinstance(value, functools.partial):
            kept = {"func": value.func, "args": value.args, "keywords": value.keywords}
            for key, part in kept.items():
                self._part(f"{name}.{key}", part, depth)
        elif isinstance(value, Mapping) and hasattr(value, "__setitem__"):
            for key in list(value):
                self._add(f"{name}[{key!r}]"[:120], value, key, "item", depth)
            self._attributes(name, value, depth)
        elif isinstance(value, (list, deque)):
            for i in range(len(value)):
                self._add(f"{name}[{i}]", value, i, "item", depth)
            self._attributes(name, value, depth)
        elif isinstance(value, (tuple, set, frozenset)):
            for i, part in enumerate(value):
                self._part(f"{name}[{i}]", part, depth)
        elif isinstance(value, type):
            if _is_own(value.__module__):
                self._class(value, depth)
        elif isinstance(value, types.ModuleType):
            return  # by the names of the code that uses it: `_function`
        else:
            self._attributes(name, value, depth)

    def _object(self, name: str, holder: Any, parts: Mapping[str, Any], depth: int) -> None:
        for part in parts.values():
            if not isinstance(part, _LEAVES) and id(part) not in self.seen:
                self.seen.add(id(part))
                self.kept.append(part)
                self._enter(
                    "self" if name == "self" else name.rpartition(".")[0] or name, part, depth
                )

    def _attributes(self, name: str, value: Any, depth: int) -> None:
        kind = type(value)
        if isinstance(value, torch.optim.Optimizer):
            return
        held = getattr(value, "__dict__", None)
        skip = _TORCHS_OWN if isinstance(value, nn.Module) else frozenset[str]()
        if isinstance(held, dict):
            for key in list(held):
                if isinstance(key, str) and key not in skip:
                    self._add(f"{name}.{key}", value, key, "attribute", depth)
        if isinstance(value, nn.Module):
            for key, child in value._modules.items():
                self._part(f"{name}.{key}", child, depth)
            self._hooks(value, depth)
        for slot in getattr(kind, "__slots__", ()) if _is_own(kind.__module__) else ():
            if isinstance(slot, str) and not slot.startswith("__"):
                self._add(f"{name}.{slot}", value, slot, "slot", depth)
        if _is_own(kind.__module__) and id(kind) not in self.seen:
            self.seen.add(id(kind))
            self.kept.append(kind)
            self._class(kind, depth)

    def _hooks(self, module: nn.Module, depth: int) -> None:
        for key, held in vars(module).items():
            if "_hooks" in key and isinstance(held, dict):
                for hook in held.values():
                    self._part(f"a hook of {type(module).__name__}", hook, depth)

    def _class(self, kind: type, depth: int) -> None:
        for base in kind.__mro__:
            if not _is_own(base.__module__):
                continue
            for key, part in list(vars(base).items()):
                part = getattr(part, "__func__", part)
                if isinstance(part, property):
                    for function in (part.fget, part.fset):
                        if isinstance(function, types.FunctionType):
                            self._function(function, depth)
                elif isinstance(part, types.FunctionType):
                    self._function(part, depth)
                elif not (key.startswith("__") and key.endswith("__")):
                    self._add(f"{base.__name__}.{key}", base, key, "class", depth)

    def _function(self, function: types.FunctionType, depth: int) -> None:
        if not is_model(function.__code__.co_filename):
            wrapped = getattr(function, "__wrapped__", None)
            if wrapped is not None:
                self._enter("wrapped", wrapped, depth)
            if not function.__closure__ or not _is_own(function.__module__ or ""):
                return
        if id(function.__code__) in self.seen and not function.__closure__:
            return
        self.seen.add(id(function.__code__))
        self.functions.append(function)
        code = function.__code__
        at = f"{code.co_name} ({line_of(code.co_filename, code.co_firstlineno)})"
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self._add(f"{name} in the closure of {at}", cell, None, "cell", depth)
        for key in vars(function):
            self._add(f"{code.co_name}.{key}", function, key, "attribute", depth)
        if function.__defaults__:
            for i, part in enumerate(function.__defaults__):
                self._part(f"default {i} of {at}", part, depth)
        for key, part in (function.__kwdefaults__ or {}).items():
            self._part(f"default {key} of {at}", part, depth)
        names = _names(code)
        library = is_installed(code.co_filename)
        for key in sorted(names & set(function.__globals__)):
            part = function.__globals__[key]
            if library and not isinstance(part, (*_LEAVES, list, dict, deque)):
                continue  # a library's own functions and classes: thousands
            if isinstance(part, types.ModuleType):
                if _is_own(part.__name__):
                    for inner in sorted(names & set(vars(part))):
                        self._add(f"{key}.{inner}", vars(part), inner, "item", depth)
            elif not isinstance(part, type) or _is_own(part.__module__):
                self._add(f"the global {key}", function.__globals__, key, "item", depth)

    def _part(self, name: str, part: Any, depth: int) -> None:
        if not isinstance(part, _LEAVES) and id(part) not in self.seen:
            self.seen.add(id(part))
            self.kept.append(part)
            self._enter(name, part, depth)


def functions_of(roots: Mapping[str, Any]) -> list[types.FunctionType]:
    """Every function with code of the model's that is reached from `roots`."""
    walk = _Walk()
    for _ in walk.from_(roots):
        pass
    return walk.functions


def places_of(roots: Mapping[str, Any]) -> list[tuple[Place, Any]]:
    """Every place that is reached from `roots` (an object by its name), with what is there now.

    At most `MOST_PLACES`, from the nearest outwards, and none deeper than `DEPTH`.
    """
    return list(_Walk().from_(roots))

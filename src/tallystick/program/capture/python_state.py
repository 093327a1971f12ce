"""The Python state that a step reaches: looked at, compared, and put back (PROGRAM 5.19).

No place holds how modules are built (their layers, their hooks, and what of them is frozen) for the
walk over what Python reaches. So that is looked at by itself.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.program.capture.content import Back, content_of, items_of, tensor_content_of
from tallystick.program.capture.looks import Relay, is_iterator, look_of, shape_of
from tallystick.program.capture.places import KeptPlace, Reached, reached_from
from tallystick.program.capture.recorded import is_recorded, plain

HOOKS = "the list of hooks of "
_GET: Any = vars(Tensor.__mro__[1])["requires_grad"].__get__
_SET: Any = vars(Tensor.__mro__[1])["requires_grad"].__set__


def structure_of(found: Reached) -> Iterator[tuple[str, Any]]:
    """What is seen of the modules that are reached, each look with its name."""
    for name, value in zip(found.names, found.objects, strict=True):
        if not isinstance(value, nn.Module):
            continue
        held: Mapping[str, Any] = vars(value)
        for key, child in held["_modules"].items():
            yield f"{name}.{key}", ("layer", type(child).__qualname__)
        dicts = [v for k, v in held.items() if "_hooks" in k and isinstance(v, dict)]
        yield HOOKS + name, ("hooks", [list(map(_hook, each.values())) for each in dicts])
        for key, parameter in held["_parameters"].items():
            if parameter is not None:
                yield f"{name}.{key}.requires_grad", ("flag", str(parameter.requires_grad))
                hooks = (parameter._backward_hooks or {}).values()
                yield f"{HOOKS}{name}.{key}", ("hooks", list(map(_hook, hooks)))


def is_flag(look: Any) -> bool:
    """Whether the look is that of a parameter's `requires_grad`."""
    return isinstance(look, tuple) and look[:1] == ("flag",)


def _hook(hook: Any) -> Any:
    """What is seen of a hook: its code. What its code reads are places."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    hook = getattr(hook, "__func__", hook)
    return getattr(hook, "__code__", None) or look_of(hook)


def flags_of(parameter: Tensor) -> Back:
    """A function that puts back whether the parameter is frozen, and its hooks."""
    needs, hooks = parameter.requires_grad, parameter._backward_hooks
    content = list((hooks or {}).items())

    def back() -> None:
        if parameter.requires_grad != needs:
            parameter.requires_grad_(needs)
        if parameter._backward_hooks is not hooks:
            parameter._backward_hooks = hooks
        if hooks is not None and list(hooks.items()) != content:
            hooks.clear()
            hooks.update(content)

    return back


def share_hooks(real: Tensor, placed: Tensor) -> None:
    """The hooks of a real parameter's gradient, for the tensor that stands for it. Both have one
    dict: what code adds or removes in a step is so in the next one."""
    if real._backward_hooks is None:
        real._backward_hooks = OrderedDict()
    placed._backward_hooks = real._backward_hooks


def real_flags(real: Mapping[str, Tensor], placed: Mapping[str, Tensor]) -> dict[Any, Any]:
    """By function, for the table of a trace: calls about the flags and hooks of parameters that a
    trace without gradients has, which are those of the real ones."""
    by_id = {id(tensor): real[name] for name, tensor in placed.items()}

    def get(tensor: Tensor) -> Any:
        return _GET(by_id.get(id(tensor), tensor))

    def put(tensor: Tensor, needs: bool = True) -> Tensor:
        if id(tensor) in by_id:
            by_id[id(tensor)].requires_grad_(needs)
        return tensor.requires_grad_(needs)

    def register(tensor: Tensor, hook: Any) -> Any:
        return by_id.get(id(tensor), tensor).register_hook(hook)  # type: ignore[no-untyped-call]

    return {_GET: get, _SET: put, Tensor.requires_grad_: put, Tensor.register_hook: register}


# Names end in _hooks, _hooks_with_kwargs and _hooks_always_called.
_INSIDE = [
    k for k, v in vars(nn.Module()).items() if isinstance(v, dict) and ("_hooks" in k)
] + ["_modules"]  # fmt: skip
_COPIED: tuple[type, ...] = (itertools.count, type(iter([])), type(iter(())), type(iter(range(0))))
_MISSING = object()


def _numpys_state() -> Any:
    state: Any = np.random.get_state()
    return state[1].tobytes(), state[2:]


class KeptContent:
    """The content of everything reached, at one moment."""

    def __init__(self, found: Reached) -> None:
        with torch._C.DisableTorchFunction():
            self._keep(found)
        self.drawn = (random.getstate(), np.random.get_state(), torch.get_rng_state())

    def _keep(self, found: Reached) -> None:
        self.set: list[tuple[KeptPlace, Any]] = [
            (p, v) for p, v in found.places if p.kind in ("cell", "slot", "class")
            or (p.kind == "item" and isinstance(p.holder, dict) and "__name__" in p.holder)
        ]  # fmt: skip
        self.contents: list[Back] = []
        seen: set[int] = set()
        values = [v for _, v in found.places]
        for value in (*found.objects, *values):
            if id(value) in seen:
                continue
            seen.add(id(value))
            made = tensor_content_of(value) if isinstance(value, Tensor) else content_of(value)
            if made is not None:
                self.contents.append(made)
            if isinstance(value, (Tensor, Relay, type)):
                continue
            held = getattr(value, "__dict__", None)
            if type(held) is dict and not isinstance(value, type(os)):
                self.contents.append(items_of(held))
            if isinstance(value, nn.Module):
                self.contents += [items_of(vars(value)[k]) for k in _INSIDE if k in vars(value)]
                parameters = [p for p in value._parameters.values() if p is not None]
                self.contents += map(flags_of, parameters)
                self.contents.append(items_of(value._buffers))  # a call may fill an empty one
        self.classes = [(kind, set(vars(kind))) for kind in found.objects if isinstance(kind, type)]

    def restore(self) -> None:
        """Everything as it was then.

        A model may add hooks to itself at its first forward, and an attribute that says so
        (transformers' `capture_outputs`). Without the attribute it would add them again.
        """
        for kind, names in self.classes:
            for name in set(vars(kind)) - names:
                delattr(kind, name)
        for place, value in self.set:
            try:
                now = place.get()
            except (LookupError, AttributeError, ValueError):
                now = _MISSING
            if now is not value:
                place.set(value)
        with torch._C.DisableTorchFunction():
            for back in self.contents:
                back()
        random.setstate(self.drawn[0])
        np.random.set_state(self.drawn[1])
        torch.set_rng_state(self.drawn[2])


class PythonState:
    """Everything that is reached from the module and the step: looked at, and put back.

    Iterators and generators in it become `Relay`s until `release`, since Python takes none back.
    """

    GENERATORS: Mapping[str, Callable[[], Any]] = {
        "Python's random": lambda: hash(random.getstate()),
        "numpy.random": _numpys_state,
        "torch's generator": lambda: torch.get_rng_state().numpy().tobytes(),
    }

    def __init__(self, module: nn.Module, *steps: Any) -> None:
        self.module = module
        self.roots = {"module": module, "os.environ": os.environ}
        self.roots |= {f"step{i or ''}": step for i, step in enumerate(steps)}
        self.relays: list[tuple[KeptPlace, Relay, Any]] = []
        # What was reached at the start: the same as long as no code but this package's has run.
        self.begun = self._relay(self.reached())
        self.first = KeptContent(self.begun)

    def _relay(self, found: Reached) -> Reached:
        known: dict[int, Relay] = {}
        for place, value in found.places:
            if is_iterator(value):
                relay = known.setdefault(id(value), Relay(value))
                first = copy.copy(value) if type(value) in _COPIED else value
                self.relays.append((place, relay, first))
                place.set(relay)
        return self.reached() if self.relays else found

    def reached(self) -> Reached:
        return reached_from(self.roots)

    def keep(self) -> KeptContent:
        """What there is now, to be put back."""
        return KeptContent(self.reached())

    def restore(self) -> None:
        """Everything as it was at the start: a trace leaves no meta tensor behind."""
        self.first.restore()

    def release(self) -> None:
        """The iterators in their places again, as they were. Call `restore` before."""
        for place, relay, first in self.relays:
            if type(relay.iterator) in _COPIED or not relay.log:
                place.set(first)
            elif not hasattr(relay.iterator, "send"):
                done = [result for _, raised, result in relay.log if not raised]
                place.set(itertools.chain(done, relay.iterator))

    def strip(self, reached: Reached) -> set[str]:
        """Recorded values in places become plain again; the names of these places."""
        found = set()
        for place, value in reached.places:
            if is_recorded(value):
                place.set(plain(value))
                found.add(place.name)
        return found

    def look(self, found: Reached | None = None) -> dict[str, Any]:
        """By the name of a place or generator: what Python sees there. Equal names are a list."""
        seen: dict[str, Any] = {}
        found = found or self.reached()
        for place, value in found.places:
            seen.setdefault(place.name, []).append(shape_of(value))
        for name, look in structure_of(found):
            seen.setdefault(name, []).append(look)
        for name, draw in self.GENERATORS.items():
            seen[name] = [draw()]
        return seen


def seen_at(place: KeptPlace) -> Any:
    """What is seen at one place, or None where nothing is."""
    try:
        return shape_of(place.get())
    except (LookupError, AttributeError, ValueError):
        return None


def unversioned(look: Any) -> Any:
    """A look without the versions of tensors: one that is put back has been changed twice."""
    if isinstance(look, tuple) and len(look) == 5 and look[0] == "tensor":
        return (*look[:3], None, look[4])
    if isinstance(look, (tuple, list)):
        return type(look)(map(unversioned, look))
    return look


def left_changed(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """The names at which two looks differ that are one state, put back: there it is not."""
    return [k for k in changed(one, two) if unversioned(one.get(k)) != unversioned(two.get(k))]


def changed(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """The names at which two looks differ."""
    return [k for k in {**one, **two} if one.get(k) != two.get(k)]

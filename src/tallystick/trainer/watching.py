"""What foreign code beside a training may change, looked at before and after each of its calls.

A job fixes what a training computes, before its first step. A change that the job does not have
would change nothing of the run. Here it is seen, and named.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
import xxhash
from torch import Tensor, nn

from tallystick.errors import CallbackError
from tallystick.program.capture.explore import shown
from tallystick.program.capture.looks import moved
from tallystick.program.capture.places import KeptPlace, places_of
from tallystick.trainer.python_watch import PythonName, PythonWatch, mark_of

FLAG = "control."
CLIP = "args.max_grad_norm"
# What a job can have by step: the settings of PROGRAM 5.22, and rates.
_CARRIED = re.compile(
    rf"requires_grad of |optimizer\.param_groups\[\d+\]\['(?!params')|{re.escape(CLIP)}$"
)


def _content(tensor: Tensor) -> Any:
    """What tells a tensor from another one: `.data` and views change no version."""
    if tensor.is_meta or tensor.layout != torch.strided:
        return id(tensor), tensor._version
    array = tensor.detach().cpu().contiguous().view(-1)
    return tuple(tensor.shape), xxhash.xxh3_128_digest(array.view(torch.uint8).numpy().tobytes())


def _hooks_of(tensor: Tensor) -> list[list[int]]:
    """What changes or reads a gradient as it is made."""
    held = (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None))
    return [list(map(id, hooks.values())) for hooks in held if hooks]


class Watch:
    """Looks at what decides the numbers of a training: the optimizer's groups, the parameters and
    buffers of the model, the tensors and modules that the loss reads beside it, what `python` sees,
    and what `more` gives by name.

    `roots` are the objects that the loss may be reached from, those of `owner` its attributes.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Any,
        roots: Mapping[str, Any],
        owner: Any = None,
        more: Callable[[], Mapping[str, Any]] = dict,
        python: PythonWatch | None = None,
    ) -> None:
        self._model, self._optimizer, self._more = model, optimizer, more
        self.python = python
        own = {} if owner is None else {n: v for n, v in roots.items() if n in vars(owner)}
        # A root is no place of its own.
        places = [(KeptPlace(n, owner, n, "attribute"), v) for n, v in own.items()]
        reached = [*places, *places_of(roots)]
        self._outside = [place for place, value in reached if isinstance(value, Tensor)]
        # Other modules that the loss calls: their tensors are no places.
        inside = {id(module) for module in model.modules()}
        self._modules = [
            (place.name, value)
            for place, value in reached
            if isinstance(value, nn.Module) and id(value) not in inside
        ]

    @contextmanager
    def kept(self) -> Iterator[None]:
        """The tensors beside the model have their contents again after the block."""
        before = [(value, value.detach().clone()) for value in self._tensors()]
        try:
            yield
        finally:
            with torch.no_grad():
                for value, content in before:
                    if _content(value) != _content(content):
                        value.data.copy_(content)

    def _tensors(self) -> Iterator[Tensor]:
        for place in self._outside:
            with suppress(LookupError, AttributeError, ValueError):
                if isinstance(value := place.get(), Tensor):
                    yield value
        yield from self._of_modules().values()

    def _of_modules(self) -> dict[str, Tensor]:
        """The tensors of the modules beside the model, each once, by name."""
        found: dict[str, Tensor] = {}
        seen = {id(t) for t in (*self._model.parameters(), *self._model.buffers())}
        for prefix, module in self._modules:
            for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                if id(tensor) not in seen:
                    seen.add(id(tensor))
                    found[f"{prefix}.{name}"] = tensor
        return found

    def settings(self) -> dict[str, Any]:
        """By name for people, what a job can have by step, and what `more` gives."""
        found = dict(self._groups())
        for name, parameter in self._model.named_parameters():
            found[f"requires_grad of {name}"] = parameter.requires_grad
        return found | dict(self._more())

    def at(self, step: int) -> None:
        """Training step `step` comes next."""
        if self.python is not None:
            self.python.at(step)

    def look(self, marks: bool = False) -> dict[str, Any]:
        """By name for people, what is there now. With `marks` a tensor is told by its object and
        its changes too: the live ones do not move in a run, so that zeros set to zeros may stand
        for other values."""

        def content(tensor: Tensor) -> Any:
            return (_content(tensor), mark_of(tensor)) if marks else _content(tensor)

        found = self.settings()
        for name, parameter in self._model.named_parameters():
            found[f"the parameter {name}"] = content(parameter)
            found[f"the hooks of the parameter {name}"] = _hooks_of(parameter)
        for name, buffer in self._model.named_buffers():
            found[f"the buffer {name}"] = content(buffer)
        for place in self._outside:
            try:
                value = place.get()
            except (LookupError, AttributeError, ValueError):
                value = None
            found[f"the tensor {place.name}"] = (
                content(value) if isinstance(value, Tensor) else type(value).__name__
            )
        for name, tensor in self._of_modules().items():
            found[f"the tensor {name}"] = content(tensor)
        state = getattr(self._optimizer, "state", {})
        found["the state of the optimizer"] = [
            (id(p), sorted((k, _content(v) if isinstance(v, Tensor) else repr(v))
             for k, v in held.items()))
            for p, held in state.items()
        ]  # fmt: skip
        return found if self.python is None else found | self.python.look()

    def changes(
        self, before: Mapping[str, Any], after: Mapping[str, Any], python: bool = True
    ) -> tuple[list[str], str]:
        """The names of what differs and matters, and a reason where there is one to tell. Without
        `python`, what Python keeps matters no more."""
        names = changed(before, after)
        reached = [name for name in names if isinstance(name, PythonName)]
        others = [name for name in names if not isinstance(name, PythonName)]
        if self.python is None or not reached or not python:
            return others, ""
        why = self.python.decides(reached)
        return (others, "") if why is None else ([*others, *reached], why)

    def _groups(self) -> Iterator[tuple[str, Any]]:
        # tallystick's own optimizers are values, which nobody changes.
        for number, group in enumerate(getattr(self._optimizer, "param_groups", ())):
            for key, value in group.items():
                name = f"optimizer.param_groups[{number}][{key!r}]"
                if key == "params":
                    yield name, [id(p) for p in value]
                else:
                    yield name, repr(value)


def fields_of(arguments: Any, names: frozenset[str]) -> dict[str, str]:
    """Those fields of a dataclass, as `args.NAME`."""
    return {
        f"args.{field.name}": repr(getattr(arguments, field.name, None))
        for field in dataclasses.fields(arguments)
        if field.name in names
    }


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The names of what differs."""
    names = [*before, *(n for n in after if n not in before)]
    return [name for name in names if before.get(name) != after.get(name)]


def is_carried(name: str) -> bool:
    """Whether a job can have the change of this name by step."""
    return _CARRIED.match(name) is not None


def told(names: Sequence[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Changes for people: a name each, with both values where they are short."""
    found = []
    for name in names:
        if isinstance(name, PythonName):
            found.append(shown(name) + moved(name, before, after, " ({} → {})"))
            continue
        one, other = before.get(name), after.get(name)
        plain = isinstance(one, (bool, str)) and isinstance(other, (bool, str))
        short = plain and len(f"{one}{other}") <= 60
        found.append(f"{name} ({one} → {other})" if short else name)
    return found


def refusal(who: str, step: int, changes: Sequence[str], why: str = "") -> CallbackError:
    """The error for changes that no job fixes; `who` is a class and its method."""
    names = ", ".join(changes[:3]) + (f" and {len(changes) - 3} more" if changes[3:] else "")
    return CallbackError(
        f"{who} changes {names} at step {step}, but the job fixes what is trained before the "
        f"first step.{why and f' {why}'} The run ends here, unsigned.",
        "Leave the callback out; the same call then continues from the last stored state. Or "
        "express the change by the optimizer's groups, a scheduler, the arguments or the loss.",
    )


def stop(who: str, step: int) -> CallbackError:
    """The error for foreign code that asks to stop: the process ends, and no run is signed."""
    return CallbackError(
        f"{who} asks to stop at step {step}. The run ends here, unsigned: only the job decides "
        "when a signed run ends.",
        "The same call without the callback continues from the last stored state. For a signed "
        "end, use max_steps, or EarlyStoppingCallback with committed validation.",
    )

"""How modules are built: their layers, their hooks, and what of them is frozen (PROGRAM 5.19).

No place holds these for the walk over what Python reaches, so they are looked at by themselves.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from tallystick.program.capture.looks import look_of
from tallystick.program.capture.places import Reached

Back = Callable[[], object]
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

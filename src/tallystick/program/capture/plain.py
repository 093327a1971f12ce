"""Wrappers of torch that change no value: a trace looks through them (PROGRAM 5.11).

Gradient checkpointing computes the forward pass twice to save memory. A program says what is
computed, and its executor what is kept; so the wrapped function runs once, and each random call has
one draw id. `torch.compile` and `torch.jit.script` make other code for the same operators.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.program.capture.replaced import replacing, usual


class _Reentrant:
    """In the place of torch's `CheckpointFunction`, whose `apply` runs the function without graph.

    Without an input that needs a gradient the result needs none either, as in torch.
    """

    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in args)
        ):
            return function(*args)


def _no_hooks(*args: Any, **kwargs: Any) -> Iterator[None]:
    """In the place of the generator around a checkpointed function: it keeps every activation."""
    yield


_SCRIPT_CALL = "torch.jit:ScriptFunction", "__call__"
_script_call = usual(*_SCRIPT_CALL)


def _as_written(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of `torch.jit.script` by the Python that it was made of."""
    written = getattr(function, "_torchdynamo_inline", None)
    return (written or functools.partial(_script_call, function))(*args, **kwargs)


def plain_python() -> Iterator[Any]:
    """Context managers within which checkpointed and compiled functions run as they are written.

    Distributions do not check their arguments, which would read the values of tensors.
    """
    checkpoint = "torch.utils.checkpoint"
    yield replacing(checkpoint, "CheckpointFunction", _Reentrant)
    yield replacing(checkpoint, "_checkpoint_without_reentrant_generator", _no_hooks)
    yield replacing(*_SCRIPT_CALL, _as_written)
    yield replacing("torch.distributions:Distribution", "_validate_args", False)
    if "torch._dynamo" in sys.modules:
        yield torch.compiler.set_stance("force_eager")
        yield torch._dynamo.config.patch(error_on_nested_fx_trace=False)


def original(module: Any) -> Any:
    """The module inside of what `torch.compile` returned; any other object as it is."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    while dynamo is not None and isinstance(module, dynamo.OptimizedModule):
        module = module._orig_mod
    return module


@contextlib.contextmanager
def uncompiled(module: nn.Module) -> Iterator[None]:
    """Within it the submodules that `torch.compile` wrapped stand in the module as they were.

    So names of parameters are those of the module as it is written.
    """
    if not isinstance(module, nn.Module):
        yield  # It is refused by name, elsewhere.
        return
    swapped: list[tuple[nn.Module, str, nn.Module]] = []
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):
            inner = original(child)
            if child is not None and inner is not child:
                swapped.append((parent, name, child))
                parent._modules[name] = inner
    compiled = [m for m in module.modules() if m._compiled_call_impl is not None]
    calls = [m._compiled_call_impl for m in compiled]
    for m in compiled:
        m._compiled_call_impl = None
    try:
        yield
    finally:
        for m, call in zip(compiled, calls, strict=True):
            m._compiled_call_impl = call
        for parent, name, child in swapped:
            parent._modules[name] = child

"""Two traces of one request, which must be the same: what changes between forwards is refused.

A program is one step for all steps. What the model takes from Python while it runs (a counter, a
clock, a generator, the last batch) would stay as it was in the first trace.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from tallystick.errors import TallystickError, UsageError
from tallystick.program.capture.carried import Carried
from tallystick.program.capture.guard import ParametersChangedError
from tallystick.program.capture.outside import Outside
from tallystick.program.capture.schema import op_name
from tallystick.program.capture.settled_outside import refuse_stale, settled_outside
from tallystick.program.capture.source import Blame
from tallystick.program.capture.trace import Request, Trace, trace

Collect = Callable[[Any], dict[str, Tensor]]
_TORCHS_OWN = frozenset(vars(nn.Module()))
# Names end in _hooks, _hooks_with_kwargs and _hooks_always_called.
_HOOKS = [k for k, v in vars(nn.Module()).items() if "_hooks" in k and isinstance(v, dict)]
_DEPTH = 6
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def _look(value: Any, depth: int = _DEPTH) -> Any:
    """What Python sees of `value`, comparable: content where it is plain, else type and attributes.

    A tensor counts by type and in-place changes, since every forward may store a new one.
    """
    if isinstance(value, _PLAIN):
        return (type(value).__name__, repr(value))
    if isinstance(value, Tensor):
        # A meta tensor is of a trace, and each trace makes its own.
        changes = None if value.is_meta or value.is_inference() else value._version
        return ("tensor", str(value.dtype), tuple(value.shape), changes)
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).digest())
    if isinstance(value, np.random.Generator):
        return ("generator", repr(value.bit_generator.state))
    if isinstance(value, random.Random):
        return ("generator", hash(value.getstate()))
    if isinstance(value, torch.Generator):
        return ("generator", value.get_state().numpy().tobytes())
    if depth == 0 or isinstance(value, (nn.Module, type)) or callable(value):
        return (type(value).__name__,)
    if isinstance(value, Mapping):
        return ("map", [(_look(k, depth - 1), _look(v, depth - 1)) for k, v in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_look(v, depth - 1) for v in value])
    if isinstance(value, (set, frozenset)):
        return ("set", sorted(repr(_look(v, depth - 1)) for v in value))
    held = getattr(value, "__dict__", {})
    return (type(value).__name__, [(k, _look(v, depth - 1)) for k, v in held.items()])


def _short(look: Any) -> str:
    if isinstance(look, tuple) and len(look) == 2 and isinstance(look[1], str):
        return look[1] if len(look[1]) <= 40 else look[1][:37] + "..."
    return str(look[0]) if isinstance(look, tuple) else "nothing"


class PythonState:
    """The module's attributes, its hooks and Python's generators: looked at, and put back."""

    GENERATORS: Mapping[str, Callable[[], Any]] = {
        "Python's random": lambda: hash(random.getstate()),
        "numpy.random": lambda: repr(np.random.get_state(legacy=False)),
        "torch's generator": lambda: torch.get_rng_state().numpy().tobytes(),
    }

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.before = {p: self._held(m) for p, m in module.named_modules()}
        self.inside = {
            id(v): (v, v.copy())
            for held in self.before.values()
            for v in held.values()
            if type(v) in (list, dict, set)
        }
        self.hooks = [
            (held, held.copy())
            for m in module.modules()
            for name in _HOOKS
            if (held := vars(m).get(name)) is not None
        ]
        self.drawn = (random.getstate(), np.random.get_state(), torch.get_rng_state())

    @staticmethod
    def _held(module: nn.Module) -> dict[str, Any]:
        return {k: v for k, v in vars(module).items() if k == "training" or k not in _TORCHS_OWN}

    def look(self, only: str | None = None) -> dict[str, Any]:
        """By attribute's path, or generator's name: what Python sees of it."""
        if only is not None and only in self.GENERATORS:
            return {only: self.GENERATORS[only]()}
        seen: dict[str, Any] = {}
        for path, module in self.module.named_modules():
            for name, value in self._held(module).items():
                full = f"{path}.{name}" if path else name
                if only is None or only == full:
                    seen[full] = _look(value)
        return seen if only else seen | {k: look() for k, look in self.GENERATORS.items()}

    def restore(self) -> None:
        """The attributes as they were: a trace leaves no meta tensor behind in the module.

        A model may add hooks to itself at its first forward, and an attribute that says so
        (transformers' `capture_outputs`). Without the attribute it would add them again.
        """
        for path, module in self.module.named_modules():
            before = self.before.get(path)
            if before is None:
                continue
            now = vars(module)
            for name in set(self._held(module)) - set(before):
                del now[name]
            now.update(before)
        for value, content in (*self.inside.values(), *self.hooks):
            if isinstance(value, list):
                value[:] = content
            else:
                value.clear()
                value.update(content)
        random.setstate(self.drawn[0])
        np.random.set_state(self.drawn[1])
        torch.set_rng_state(self.drawn[2])


def _changed(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    return [k for k in {**one, **two} if one.get(k) != two.get(k)]


def _arguments(node: fx.Node, place: Mapping[fx.Node, int]) -> Any:
    def plain(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return ("node", place[value])
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        if isinstance(value, dict):
            return [(k, plain(v)) for k, v in value.items()]
        return (type(value).__name__, repr(value))

    return plain(node.args), plain(dict(node.kwargs))


def _constant(traced: Trace, node: fx.Node) -> Any:
    value = getattr(traced.graph.owning_module, str(node.target), None)
    if isinstance(value, Tensor) and not value.is_meta:
        return (str(value.dtype), tuple(value.shape), value.detach().cpu().numpy().tobytes())
    return node.target


def _nodes(traced: Trace) -> list[tuple[fx.Node, Any]]:
    """The nodes in order, each with what it does, names of nodes replaced by their places."""
    place = {node: i for i, node in enumerate(traced.graph.nodes)}

    def meaning(node: fx.Node) -> Any:
        if node.op == "get_attr":
            return _constant(traced, node)
        name = op_name(node.target) if node.op == "call_function" else None
        return node.op, name, _arguments(node, place)

    return [(node, meaning(node)) for node in place]


def _difference(first: Trace, second: Trace) -> tuple[fx.Node, fx.Node] | None:
    """The first pair of nodes that differ."""
    for (a, meaning), (b, other) in zip(_nodes(first), _nodes(second), strict=False):
        if meaning != other:
            return a, b
    return None


def _call(node: fx.Node) -> str:
    name = op_name(node.target) if node.op == "call_function" else f"{node.op} {node.target}"
    numbers = [repr(a) for a in node.args if not isinstance(a, (fx.Node, list, tuple))]
    return f"{name}({', '.join(numbers)})" if numbers else name


def settled_trace(
    request: Request, collect: Collect, known: Carried | None = None
) -> tuple[Request, Trace]:
    """`trace`, twice, and the request with the slots for what the code keeps outside (5.20).

    Raises UsageError where the two differ, or the module goes on changing. The second trace begins
    with what the first left in the module. So a cache that is filled once may stay, where the
    program is the same with it. Then everything is put back. With `known`, the slots of the step
    that this is the evaluation of, no other tensor may be a slot.
    The trace's `changed` are the parameters that the forward pass changes in place.
    """
    while True:
        try:
            return _settled(request, collect, known)
        except ParametersChangedError as error:
            if request.groups is not None:
                raise UsageError(
                    f"The model changes the parameter {min(error.names)} while it runs.",
                    "In a step with several optimizers only those change parameters.",
                ) from None
            request = replace(request, changed=request.changed | error.names)


def _settled(request: Request, collect: Collect, known: Carried | None) -> tuple[Request, Trace]:
    state = PythonState(request.module)
    outside = Outside.of(request.module, request.run)
    try:
        before = state.look()
        request, first = settled_outside(request, collect, outside, state.restore, known)
        between = state.look()
        outside.left = outside.containers.left()
        try:
            second = trace(request, collect, first)
        except TallystickError as error:
            refuse_stale(outside, error)
            _refuse_changes(request, collect, state, _changed(before, between), error)
            raise
        after = state.look()
        moving = _changed(between, after)
        if moving:
            _refuse_moving(request, collect, state, moving, between, after)
        pair = None if second is first else _difference(first, second)
        if pair is not None:
            refuse_stale(outside)
            _refuse_changes(request, collect, state, _changed(before, between), None)
            _refuse_difference(first, *pair)
        if first.outputs != second.outputs:
            raise UsageError(
                "Two traces of the model have different results.",
                "Return the same metrics, and use the same parameters, at every step.",
            )
        _refuse_growing(request, collect, outside, first)
        return request, first
    finally:
        state.restore()
        outside.put_back()


def _refuse_growing(request: Request, collect: Collect, outside: Outside, first: Trace) -> None:
    """Raises UsageError where a list gets longer at each call, and the step depends on it."""
    grown = outside.containers.grow()
    if not grown:
        return
    error: TallystickError | None = None
    try:
        later = trace(request, collect, first)
    except TallystickError as found:
        error = found
    if error is None and (later is first or _difference(first, later) is None):
        return
    raise UsageError(
        f"{grown[0]} gets another tensor at every call, and the step depends on how many there "
        "are.",
        "Keep a tensor of fixed size (a ring, as torch.zeros(size, ...) with a position), made "
        "before the training.",
    ) from error


def _line(request: Request, collect: Collect, state: PythonState, name: str) -> str:
    """Where `name` changes, found by a trace line by line: ` (file:line)`, or nothing."""
    blame = Blame(lambda: state.look(name))
    try:
        with blame.watching():
            trace(request, collect)
    except TallystickError:
        pass
    return f" ({blame.line})" if blame.line else ""


def _refuse_moving(
    request: Request,
    collect: Collect,
    state: PythonState,
    moving: list[str],
    one: Mapping[str, Any],
    two: Mapping[str, Any],
) -> None:
    drawn = [name for name in moving if name in state.GENERATORS]
    where = _line(request, collect, state, (drawn or moving)[0])
    if drawn:
        raise UsageError(
            f"The model draws from {drawn[0]} while it runs{where}. A program would have the "
            "first trace's number at every step.",
            "Draw the numbers beforehand into the batch, or use dropout, whose masks the contract "
            "defines.",
        )
    name = moving[0]
    others = f" So do {', '.join(moving[1:4])}." if moving[1:] else ""
    raise UsageError(
        f"The attribute {name} changes at every forward, from {_short(one.get(name))} to "
        f"{_short(two.get(name))}{where}.{others} A program would have its first value at every "
        "step.",
        "Keep it in a buffer (register_buffer) that tensor operators change: buffers are state. "
        "Or take it out of forward.",
    )


def _refuse_changes(
    request: Request,
    collect: Collect,
    state: PythonState,
    changed: list[str],
    error: TallystickError | None,
) -> None:
    """Name what a first forward changed, where a second one is another program for it."""
    if not changed:
        return
    state.restore()
    where = _line(request, collect, state, changed[0])
    second = f"fails: {error.message}" if error else "is another program."
    raise UsageError(
        f"The first forward changes {', '.join(changed[:4])}{where}, and a second forward with "
        f"that {second}",
        "Set such attributes before capture, or register tensors among them as buffers.",
    ) from error


def _refuse_difference(first: Trace, a: fx.Node, b: fx.Node) -> None:
    path, line = first.origin.get(a.name), first.lines.get(a.name)
    where = f"in module {path}" if path else "outside every submodule"
    raise UsageError(
        f"Two traces of the model differ: first {_call(a)}, then {_call(b)}, {where}"
        f"{f' ({line})' if line else ''}. It takes something from Python that changes: a clock, "
        "a counter, a generator.",
        "Pass the value in the batch, keep it in a buffer, or make it a constant.",
    )

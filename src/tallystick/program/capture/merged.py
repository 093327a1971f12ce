"""Traces that differ only in numbers, as one trace that reads them from tables (PROGRAM 5.21)."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tallystick.program.capture.same_program import constant
from tallystick.program.capture.schema import op_name
from tallystick.program.capture.trace import Trace

NUMBER = torch.ops.tallystick.number.default
_ATEN = torch.ops.aten
_FULL = _ATEN.full.default
# Their second operand is a number or a tensor, with the same result.
_EITHER = frozenset({
    _ATEN.mul.Tensor, _ATEN.add.Tensor, _ATEN.sub.Tensor, _ATEN.div.Tensor,
})  # fmt: skip

# Where a number comes from: itself, or the name that the trace gave it.
Source = float | str


@dataclass(frozen=True)
class TraceShape:
    """A trace without its numbers: `digest` is equal where all else is. `sources` are those of the
    numbers, in the order in which the nodes read them."""

    digest: bytes
    sources: tuple[Source, ...]


def _is_f32(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype == torch.float32


def _plain(value: Any) -> float | None:
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if fits else None


def _number(node: fx.Node) -> Source | None:
    """The number that a node is."""
    if node.target is NUMBER:
        return str(node.args[1])
    if node.target is _FULL and not node.args[0] and _is_f32(node):
        return _plain(node.args[1])
    return None


Read = Callable[[Any, Source], Any]


def _arguments(node: fx.Node, read: Read) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A node's arguments, with `read(argument, source)` in the place of each number that a trace
    could have from elsewhere."""

    def change(value: Any) -> Any:
        if isinstance(value, fx.Node):
            source = _number(value)
            return value if source is None else read(value, source)
        if isinstance(value, (list, tuple)):
            return type(value)(change(v) for v in value)
        return value

    args = [change(a) for a in node.args]
    if node.target in _EITHER and _is_f32(node) and len(args) > 1:
        operand = _plain(node.args[1])
        if operand is not None:
            args[1] = read(node.args[1], operand)
    return tuple(args), {k: change(v) for k, v in node.kwargs.items()}


class _Number:
    """In the place of a number, whatever it is."""

    def __repr__(self) -> str:
        return "number"


def shape_of(traced: Trace) -> TraceShape:
    """What the trace is beside its numbers, and where these come from."""
    place: dict[fx.Node, int] = {}
    sources: list[Source] = []
    told: list[str] = [
        repr((traced.inputs, traced.outputs, traced.updates, sorted(traced.changed)))
    ]

    def noted(_: Any, source: Source) -> _Number:
        sources.append(source)
        return _Number()

    def form(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return "node", place[value]
        if isinstance(value, (list, tuple)):
            return [form(v) for v in value]
        return (type(value).__name__, repr(value))

    for node in traced.graph.nodes:
        if node.op == "call_function" and _number(node) is not None:
            continue
        place[node] = len(place)
        args, named = _arguments(node, noted)
        if node.op == "call_function":
            name = op_name(node.target)
        else:
            name = constant(traced, node) if node.op == "get_attr" else node.op
        forms = [form(a) for a in args], [(k, form(v)) for k, v in named.items()]
        told.append(repr((node.op, name, forms)))
    digest = hashlib.sha256("\n".join(told).encode("utf-8")).digest()
    return TraceShape(digest, tuple(sources))


def with_names(traced: Trace, names: Mapping[int, str]) -> Trace:
    """The trace whose numbers, by their places in `Shape.sources`, are the scalars of these names;
    the others stay."""
    graph = fx.Graph(tracer_cls=traced.graph._tracer_cls)
    graph.owning_module = traced.graph.owning_module
    copies: dict[fx.Node, fx.Node] = {}
    made: dict[str, fx.Node] = {}
    rng = [node for node in traced.graph.nodes if node.op == "placeholder"]
    numbers = itertools.count()

    def scalar(name: str) -> fx.Node:
        if name not in made:
            key = copies[rng[traced.inputs.index("rng")]]
            made[name] = graph.call_function(NUMBER, (key, name))
            made[name].meta["val"] = torch.empty([], dtype=torch.float32, device="meta")
        return made[name]

    def read(argument: Any, _: Source) -> Any:
        name = names.get(next(numbers))
        return argument if name is None else scalar(name)

    for node in traced.graph.nodes:
        if node.op == "call_function" and _number(node) is not None:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            continue
        args, named = _arguments(node, read)
        copy = copies[node] = graph.node_copy(node, copies.__getitem__)
        copy.args = fx.node.map_arg(args, lambda n: copies.get(n, n))
        copy.kwargs = fx.node.map_arg(named, lambda n: copies.get(n, n))
    return replace(traced, graph=graph)


def are_whole(traced: Trace, name: str) -> bool:
    """Whether the trace reads the number as an integer somewhere."""
    return any(
        node.target is _ATEN._to_copy.default and node.kwargs.get("dtype") == torch.int64
        for made in traced.graph.nodes
        if made.target is NUMBER and made.args[1] == name
        for node in made.users
    )

"""Whether two traces are one program, by what their results are made of and nothing else; and
traces that differ only in numbers as one trace that reads them from tables (PROGRAM 5.21).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx

from tallystick.program.capture.schema import op_name
from tallystick.program.capture.trace import Trace


def live(graph: fx.Graph) -> list[fx.Node]:
    """The nodes that the results depend on, in order."""
    nodes = list(graph.nodes)
    seen, stack = set(), [node for node in nodes if node.op == "output"]
    while stack:
        at = stack.pop()
        if at not in seen:
            seen.add(at)
            stack.extend(at.all_input_nodes)
    return [node for node in nodes if node in seen]


def reaches_results(graph: fx.Graph, start: int, end: int) -> bool:
    """Whether results depend on the nodes from `start` to `end`, by their numbers in the graph.

    A change in place reaches whatever shares the changed tensor's memory.
    """
    nodes = list(graph.nodes)
    stack, seen = nodes[start:end], set[fx.Node]()
    while stack:
        at = stack.pop()
        if at in seen:
            continue
        if at.op == "output":
            return True
        seen.add(at)
        stack.extend(at.users)
        target = at.target
        if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable:
            stack.extend(_memory_of(at))
    return False


def _memory_of(node: fx.Node) -> list[fx.Node]:
    """What shares memory with the tensor that `node` changes: its views' first arguments."""
    found: list[fx.Node] = []
    while node.all_input_nodes:
        node = node.all_input_nodes[0]
        found.append(node)
        target = node.target
        shares = isinstance(target, torch._ops.OpOverload) and any(
            a.alias_info is not None for a in target._schema.arguments
        )
        if not shares:
            break
    return found


def constant(traced: Trace, node: fx.Node) -> Any:
    """What a `get_attr` node is: a constant by its content, any other tensor by its name."""
    value = getattr(traced.graph.owning_module, str(node.target), None)
    if isinstance(value, Tensor) and not value.is_meta:
        content = hashlib.sha256(value.detach().cpu().numpy().tobytes()).hexdigest()
        return str(value.dtype), tuple(value.shape), content
    return str(node.target)


class _Numbered:
    """Gives equal numbers to nodes that compute the same."""

    def __init__(self, one: Mapping[str, str]) -> None:
        self.known: dict[Any, int] = {}
        self.one = one

    def of(self, traced: Trace) -> list[tuple[fx.Node, int]]:
        number: dict[fx.Node, int] = {}

        def plain(value: Any) -> Any:
            if isinstance(value, fx.Node):
                return "node", number[value]
            if isinstance(value, (list, tuple)):
                return tuple(plain(v) for v in value)
            if isinstance(value, dict):
                return tuple((k, plain(v)) for k, v in value.items())
            return type(value).__name__, repr(value)

        for node in live(traced.graph):
            if node.op == "get_attr":
                meaning = constant(traced, node)
            elif node.op == "placeholder":
                meaning = traced.inputs[list(traced.graph.nodes).index(node)]
                meaning = self.one.get(meaning, meaning)
            else:
                name = op_name(node.target) if node.op == "call_function" else node.op
                meaning = name, plain(node.args), plain(dict(node.kwargs))
            number[node] = self.known.setdefault((node.op, meaning), len(self.known))
        return list(number.items())


def difference(
    first: Trace, second: Trace, one_input: Mapping[str, str] = MappingProxyType({})
) -> tuple[fx.Node, fx.Node] | None:
    """The first pair of nodes that differ, or None where the results are computed the same way.
    `one_input` gives inputs of equal values one name."""
    if second is first:
        return None
    numbered = _Numbered(one_input)
    one, two = numbered.of(first), numbered.of(second)
    if one[-1][1] == two[-1][1]:
        return None
    ones, twos = {n for _, n in one}, {n for _, n in two}
    a = next((node for node, n in one if n not in twos), one[-1][0])
    b = next((node for node, n in two if n not in ones), two[-1][0])
    return a, b


def call_of(node: fx.Node) -> str:
    """A node, for a message."""
    name = op_name(node.target) if node.op == "call_function" else f"{node.op} {node.target}"
    numbers = [repr(a) for a in node.args if not isinstance(a, (fx.Node, list, tuple))]
    return f"{name}({', '.join(numbers)})" if numbers else name


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

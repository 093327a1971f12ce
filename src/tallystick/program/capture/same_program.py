"""Whether two traces are one program: what their results are made of, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
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

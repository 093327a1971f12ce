"""Which nodes of a traced graph its results depend on."""

from __future__ import annotations

import torch
from torch import fx


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

"""What each value of a graph is: a weight, a buffer, or known once shapes are known.

A value is *known* if it depends on no data: constants, integer and bool initializers, shapes, and
what folding operators make of those. It is *needed* if it fixes a shape or the form of the program.
Every needed value must be known. A float initializer is a parameter, unless it is needed, serves as
a setting or a running statistic, or is named frozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from tallystick.errors import UsageError
from tallystick.program.capture.onnx.call import Rule, is_plain, rules
from tallystick.program.capture.onnx.graph import Graph, GraphNode


@dataclass
class Roles:
    """`known` are arrays at hand, `folded` the nodes that are computed once per form of shapes."""

    known: dict[str, np.ndarray] = field(default_factory=dict)
    folded: set[str] = field(default_factory=set)
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
    buffers: dict[str, np.ndarray] = field(default_factory=dict)


def _by_use(graph: Graph, which: str) -> set[str]:
    """Values that some node reads at a position of this kind."""
    return {
        node.inputs[i]
        for node in graph.nodes
        for i in getattr(rules[node.op], which)
        if i < len(node.inputs) and node.inputs[i]
    }


def needed_values(graph: Graph) -> dict[str, GraphNode]:
    """Every value that must be known, with the node that needs it."""
    needed: dict[str, GraphNode] = {}
    for node in reversed(graph.nodes):
        rule = rules[node.op]
        wanted = [node.inputs[i] for i in rule.static if i < len(node.inputs)]
        later = [needed[name] for name in node.outputs if name in needed]
        if later and rule.folds and not rule.of_shape:
            wanted = [*node.inputs]
        for name in wanted:
            if name:
                needed.setdefault(name, later[0] if later else node)
    return needed


def needed_inputs(graph: Graph) -> tuple[str, ...]:
    """The graph's inputs that fix a shape or the form of the program."""
    needed = needed_values(graph)
    return tuple(port.name for port in graph.inputs if port.name in needed)


def roles_of(graph: Graph, frozen: Iterable[str], fixed: Mapping[str, np.ndarray]) -> Roles:
    """The roles of a graph's values. Raises UsageError for an input that must be fixed."""
    needed = needed_values(graph)
    missing = [n for n in needed_inputs(graph) if n not in fixed]
    if missing:
        raise UsageError(
            f"The input {missing[0]!r} fixes a shape or the form of the program "
            f"({needed[missing[0]]}), and a program has one form.",
            f"Give its value: fixed={{{missing[0]!r}: array}}.",
        )
    found = Roles(known={**graph.constants, **fixed})
    _initializers(graph, needed, tuple(frozen), found)
    known = {*found.known}
    for node in graph.nodes:
        rule = rules[node.op]
        given = [name for name in node.inputs if name]
        if rule.of_shape or (rule.folds and all(name in known for name in given)):
            found.folded.add(node.name)
            known |= {name for name in node.outputs if name}
    for name, node in needed.items():
        if name not in known:
            raise UsageError(
                f"{node} takes {name!r}, which fixes the form of the program, from data.",
                "Export the model with fixed shapes, or with this value as a constant.",
            )
    for name in _read_as_tensors(graph, found):
        array = found.known.get(name)
        if array is not None and (name in graph.initializers or not is_plain(array)):
            found.buffers[name] = array
    return found


def _initializers(
    graph: Graph, needed: Mapping[str, GraphNode], frozen: tuple[str, ...], found: Roles
) -> None:
    statistics, settings = _by_use(graph, "statistics"), _by_use(graph, "settings")
    tensors = _read_as_tensors(graph, None)
    used: set[str] = set()
    for name, array in graph.initializers.items():
        patterns = {pattern for pattern in frozen if fnmatchcase(name, pattern)}
        used |= patterns
        if array.dtype != np.float32 or name in needed or name not in tensors:
            if name in settings or name in needed or name in tensors:
                found.known[name] = array
        elif name in statistics or patterns:
            found.buffers[name] = array
        else:
            found.parameters[name] = array
    for pattern in frozen:
        if pattern not in used:
            raise UsageError(
                f"No initializer of the file has the name {pattern!r}.",
                "frozen= takes names of the file, or patterns such as 'encoder.*'.",
            )


def _read_as_tensors(graph: Graph, roles: Roles | None) -> set[str]:
    """Values that nodes outside of `roles.folded` read as tensors, and the graph's outputs."""
    read = {port.name for port in graph.outputs}
    for node in graph.nodes:
        if roles is not None and node.name in roles.folded:
            continue
        rule: Rule = rules[node.op]
        other = {*rule.static, *rule.settings}
        read |= {name for i, name in enumerate(node.inputs) if name and i not in other}
    return read

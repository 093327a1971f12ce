"""Names of a model's layers beside the numbers of nodes: people know the first.

A program has no layers. But its state slots have the module's own names, so a node that reads one,
or whose operands come from such a node, is of that layer. Nodes of the backward part read what
forward nodes have made, and so are of the same layer.
"""

from __future__ import annotations

from collections import deque

from tallystick.program.ir import COMMIT, Program

PARAMETER, BUFFER = "param.", "buffer."
# Nodes looked at before a name is given up: a far operand says little about a node.
_MOST = 64


def layer_of(program: Program, node: int) -> str | None:
    """The layer that a node most likely belongs to, by its module's name; None without one."""
    if program.nodes[node].op == COMMIT:
        return None
    seen, waiting = {node}, deque([node])
    while waiting and len(seen) <= _MOST:
        at = waiting.popleft()
        for value in program.nodes[at].inputs:
            if value is None:
                continue
            if not value.is_input:
                if value.node not in seen:
                    seen.add(value.node)
                    waiting.append(value.node)
                continue
            name = program.inputs[value.out].name
            for prefix in (PARAMETER, BUFFER):
                if name.startswith(prefix):
                    return name[len(prefix) :].rpartition(".")[0] or name[len(prefix) :]
    return None

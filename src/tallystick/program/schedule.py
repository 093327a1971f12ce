"""The executor's order of nodes, and the storage that each view shares.

Node indices never change. Only the position of an optimizer node in the order changes: the node
runs as soon as its gradient exists and no other node will read the old parameter. That frees the
gradient.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import TypeVar

from tallystick.kernels.evaluate import view
from tallystick.program.ir import Program, Value, op_spec

T = TypeVar("T")


def view_roots(program: Program) -> dict[Value, Value]:
    """For every node output, the value whose storage it may share: itself, unless it is a view."""
    roots: dict[Value, Value] = {}
    for index, node in enumerate(program.nodes):
        is_view = node.op in view
        for out in range(len(node.out_types)):
            value = Value(index, out)
            source = node.inputs[0] if is_view and node.inputs else None
            roots[value] = value if source is None else roots.get(source, source)
    return roots


def views_of(program: Program, value: Value) -> tuple[Value, list[int]]:
    """The value whose storage `value` may share, and the view nodes between, first to last."""
    views: list[int] = []
    while not value.is_input and program.nodes[value.node].op in view:
        source = program.nodes[value.node].inputs[0]
        assert source is not None, "a view has an operand"
        views.append(value.node)
        value = source
    return value, views[::-1]


def execution_order(program: Program, hoist: bool = True) -> list[int]:
    """Node indices in execution order: program order, with optimizer nodes moved forward if
    `hoist`."""
    count = len(program.nodes)
    if not hoist:
        return list(range(count))
    early = [op_spec(node.op).op_class == "optimizer" for node in program.nodes]
    waits_for = _prerequisites(program, early)
    unblocks: dict[int, list[int]] = {}
    remaining = {node: len(needed) for node, needed in waits_for.items()}
    for node, needed in waits_for.items():
        for other in needed:
            unblocks.setdefault(other, []).append(node)
    order: list[int] = []
    done = [False] * count

    def visit(index: int) -> None:
        ready = [index]
        while ready:
            node = ready.pop()
            if done[node]:
                continue
            done[node] = True
            order.append(node)
            for waiting in unblocks.get(node, ()):
                remaining[waiting] -= 1
                if remaining[waiting] == 0:
                    ready.append(waiting)

    for node, needed in waits_for.items():
        if not needed:
            visit(node)
    for index in range(count):
        visit(index)
    return order


def _prerequisites(program: Program, early: list[bool]) -> dict[int, set[int]]:
    """The prerequisites of each movable node: its operands, and all other readers of its old state.

    An optimizer node whose prerequisites are not met earlier runs at its own place. So a program
    that reads an old value after the update still executes correctly.
    """
    roots = view_roots(program)
    read_by: dict[Value, set[int]] = {}
    for index, node in enumerate(program.nodes):
        for value in node.inputs:
            if value is not None:
                read_by.setdefault(roots.get(value, value), set()).add(index)
    needed: dict[int, set[int]] = {}
    for index, node in enumerate(program.nodes):
        if not early[index]:
            continue
        waits: set[int] = set()
        for value in node.inputs:
            if value is None:
                continue
            if not value.is_input:
                waits.add(value.node)
            elif program.inputs[value.out].kind == "state":
                waits |= {r for r in read_by[value] if not early[r]}
        waits.discard(index)
        needed[index] = {w for w in waits if program.nodes[w].op != "tallystick.commit"}
    return needed


def in_order(waits: Mapping[T, set[T]], place: Callable[[T], int]) -> tuple[list[T], list[T]]:
    """The items of `waits`, each after those that it waits for; of several that are ready, the one
    of the smallest `place` first. Then those that wait for each other, or for such items, by place.
    """
    follow: dict[T, list[T]] = {}
    left = {item: len(needed) for item, needed in waits.items()}
    for item, needed in waits.items():
        for other in needed:
            follow.setdefault(other, []).append(item)
    ready = [(place(item), item) for item, count in left.items() if not count]
    heapq.heapify(ready)
    done: list[T] = []
    while ready:
        _, item = heapq.heappop(ready)
        done.append(item)
        for other in follow.get(item, []):
            left[other] -= 1
            if not left[other]:
                heapq.heappush(ready, (place(other), other))
    return done, sorted((item for item, count in left.items() if count), key=place)

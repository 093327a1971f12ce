"""A part of a program makes the bits that it makes in the whole (program/part.py)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from emulated_device import Island
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import f32, linear_inputs, linear_step

from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.faults import NodeError
from tallystick.program.ir import COMMIT, Node, Value
from tallystick.program.layout import new_tensor
from tallystick.program.part import PartExecutor, part_of

LR = {"lr": 0.5}
KEY = np.array([7, 3], np.int64)
PROGRAM = linear_step()
COMPUTING = [n for n, node in enumerate(PROGRAM.nodes) if node.op != COMMIT]


def whole() -> dict[Value, bytes]:
    """Every value of the program, from one execution of all of it."""
    found: dict[Value, bytes] = {}

    def tap(
        index: int, node: Node, inputs: Sequence[np.ndarray | None], outputs: Sequence[np.ndarray]
    ) -> None:
        found.update({Value(index, i): out.tobytes() for i, out in enumerate(outputs)})

    Executor(PROGRAM).run_step(*linear_inputs(), LR, KEY, tap=tap, advance=False)
    return found


@settings(max_examples=60, deadline=None)
@given(owner=st.lists(st.integers(0, 2), min_size=len(COMPUTING), max_size=len(COMPUTING)))
def test_any_partition_makes_the_bits_of_the_whole(owner: list[int]) -> None:
    """Nodes dealt to three parts, executed wherever their values are there."""
    expected, (state, batch) = whole(), linear_inputs()
    known: dict[Value, np.ndarray] = {}
    waiting = [[n] for n in COMPUTING]
    # Neighbours of one owner are one part: topological order keeps each part executable.
    for at in range(len(waiting) - 1, 0, -1):
        if owner[at] == owner[at - 1]:
            waiting[at - 1] += waiting.pop(at)
    for nodes in waiting:
        part = PartExecutor(PROGRAM, nodes, ExecutionContext(1 + len(nodes) % 2))
        made = part.run(state, batch, {v: known[v] for v in part.part.given}, LR, KEY)
        assert set(made) == set(part.part.made)
        known.update(made)
    read = {v for node in PROGRAM.nodes for v in node.inputs if v is not None and not v.is_input}
    ends = {v for _, v in PROGRAM.outputs if not v.is_input}
    assert ends <= set(known)
    assert {v: known[v].tobytes() for v in known} == {v: expected[v] for v in known}
    if len(set(owner)) == 1:
        assert set(known) == ends | (read & set(known))
    assert state["param.w"].tobytes() == linear_inputs()[0]["param.w"].tobytes()


def test_values_may_stay_on_the_device() -> None:
    state, batch = linear_inputs()
    first = PartExecutor(PROGRAM, [0, 1])
    second = PartExecutor(PROGRAM, COMPUTING[2:])
    made = first.run(state, batch, {}, LR, KEY, on_device=True)
    ends = second.run(state, batch, made, LR, KEY)
    expected = whole()
    assert {v: a.tobytes() for v, a in ends.items()} == {v: expected[v] for v in ends}


def test_a_part_reads_only_what_its_nodes_read() -> None:
    part = part_of(PROGRAM, [3, 2])
    assert part.numbers == (2, 3)
    assert part.given == (Value(1, 0),)
    assert part.made == (Value(3, 0),)
    assert [spec.name for spec in part.program.inputs] == ["batch.%1.0", "param.w"]


def test_a_fault_names_the_node_of_the_whole() -> None:
    b = Builder()
    w, index = b.state("w", f32(4, 2)), b.batch("i", TensorType("i64", (3,)))
    scaled = b.one("aten.mul.Tensor", [w, w])
    found = b.one("aten.embedding", [scaled, index], padding_idx=-1)
    b.commit({"w": w})
    program = b.finish({"logits": found, "w": w})
    part = PartExecutor(program, [1])
    state = {"w": np.ones((4, 2), np.float32)}
    values = {Value(0, 0): state["w"]}
    with pytest.raises(NodeError, match=r"Node 1 \(aten\.embedding\)") as caught:
        part.run(state, {"i": np.array([0, 9, 1])}, values)
    assert caught.value.node == 1 and not caught.value.state_lost
    assert part.run(state, {"i": np.array([0, 3, 1])}, values)[Value(1, 0)].shape == (3, 2)


def test_what_is_no_part_is_refused() -> None:
    commit = next(n for n, node in enumerate(PROGRAM.nodes) if node.op == COMMIT)
    for nodes in ([], [-1], [len(PROGRAM.nodes)], [0, commit]):
        with pytest.raises(UsageError):
            part_of(PROGRAM, nodes)
    state, batch = linear_inputs()
    with pytest.raises(UsageError, match=r"%1\.0"):
        PartExecutor(PROGRAM, [2]).run(state, batch, {}, LR, KEY)


def test_a_value_that_is_elsewhere_is_refused() -> None:
    """A part takes host arrays and tensors of its own device, of the value's own shape."""
    state, batch = linear_inputs()
    island = ExecutionContext(device=Island())
    w = new_tensor(island.device, PROGRAM.state_types["param.w"])
    island.device.write(state["param.w"], w)
    made = PartExecutor(PROGRAM, [0, 1], island).run({"param.w": w}, batch, {}, LR, KEY, True)
    with pytest.raises(UsageError, match=r"%1\.0 is not on cpu"):
        PartExecutor(PROGRAM, [2]).run(state, batch, made, LR, KEY)
    wrong = {Value(1, 0): new_tensor(island.device, f32(1))}
    with pytest.raises(UsageError, match=r"%1\.0 is not on island"):
        PartExecutor(PROGRAM, [2], island).run({"param.w": w}, batch, wrong, LR, KEY)

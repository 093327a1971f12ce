"""The executor against a plain interpreter, and what it says when something is wrong."""

from __future__ import annotations

import errno
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import (
    Arrays,
    f32,
    interpret,
    linear_inputs,
    linear_step,
    named_inputs,
)

from tallystick.devices.device import Run
from tallystick.errors import UsageError
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.executor import Executor
from tallystick.program.ir import Node, Program, Value
from tallystick.program.runner import NodeError, NodeFaultError

LR = {"lr": 0.5}
KEY = np.array([7, 3], np.int64)


def _full_inputs(state: Arrays, batch: Arrays) -> Arrays:
    return named_inputs(state, batch, rng=KEY, **{"scalar.lr": np.float64(0.5)})


def test_step_equals_the_plain_interpreter_and_writes_the_state_in_place() -> None:
    state, batch = linear_inputs()
    expected = interpret(linear_step(), _full_inputs(state, batch))
    arrays = dict(state)
    result = Executor(linear_step()).run_step(state, batch, LR, KEY)
    assert result.loss is not None
    assert result.loss.tobytes() == expected["loss"].tobytes()
    assert state["param.w"] is arrays["param.w"]
    assert state["param.w"].tobytes() == expected["param.w"].tobytes()
    assert not state["buffer.frozen"].any()


def test_tap_sees_every_node_in_order_with_operands_intact() -> None:
    state, batch = linear_inputs()
    before = state["param.w"].copy()
    seen: list[tuple[int, str]] = []

    def tap(
        index: int, node: Node, inputs: Sequence[np.ndarray | None], outputs: Sequence[np.ndarray]
    ) -> None:
        seen.append((index, node.op))
        assert [o.shape for o in outputs] == [t.shape for t in node.out_types]
        if node.op == "tallystick.sgd_step":
            assert inputs[0] is not None
            assert np.array_equal(inputs[0], before)
            assert not np.array_equal(outputs[0], before)

    tapped = Executor(linear_step()).run_step(state, batch, LR, KEY, tap=tap)
    other, _ = linear_inputs()
    plain = Executor(linear_step()).run_step(other, batch, LR, KEY)
    assert seen == [(i, node.op) for i, node in enumerate(linear_step().nodes)]
    assert tapped.loss == plain.loss
    assert state["param.w"].tobytes() == other["param.w"].tobytes()


def test_tap_does_not_disturb_later_steps() -> None:
    state, batch = linear_inputs()
    other, _ = linear_inputs()
    mixed, plain = Executor(linear_step()), Executor(linear_step())
    for step in range(4):
        tap = (lambda *_: None) if step % 2 else None
        mixed.run_step(state, batch, LR, (1, step), tap=tap)
        plain.run_step(other, batch, LR, (1, step))
        assert state["param.w"].tobytes() == other["param.w"].tobytes()


def test_new_state_arrays_are_noticed() -> None:
    state, batch = linear_inputs()
    executor = Executor(linear_step())
    executor.run_step(state, batch, LR, KEY)
    moved = {name: array.copy() for name, array in state.items()}
    executor.run_step(state, batch, LR, KEY)
    executor.run_step(moved, batch, LR, KEY)
    assert state["param.w"].tobytes() == moved["param.w"].tobytes()


def _swap() -> Program:
    """Next a = old b, next b = old a + old a: no slot may be overwritten too early."""
    b = Builder()
    first, second = b.state("a", f32(3)), b.state("b", f32(3))
    after = {"a": second, "b": b.one("aten.add.Tensor", [first, first], alpha=1.0)}
    b.commit(after)
    return b.finish(after)


def test_slots_that_change_places() -> None:
    state = {"a": np.full(3, 1, np.float32), "b": np.full(3, 5, np.float32)}
    executor = Executor(_swap())
    executor.run_step(state, {})
    assert (state["a"].tolist(), state["b"].tolist()) == ([5.0] * 3, [2.0] * 3)
    executor.run_step(state, {})
    assert (state["a"].tolist(), state["b"].tolist()) == ([2.0] * 3, [10.0] * 3)


def _lookup(first_update: bool) -> Program:
    """An embedding lookup that can fail; with `first_update` after a state slot was written."""
    b = Builder()
    w, counter = b.state("w", f32(4, 2)), b.state("counter", TensorType("i64", ()))
    index = b.batch("i", TensorType("i64", (3,)))
    steps = [
        lambda: b.one("aten.add.Scalar", [counter], other=1.0, alpha=1.0),
        lambda: b.one("aten.embedding", [w, index], padding_idx=-1),
    ]
    if first_update:
        count, found = steps[0](), steps[1]()
    else:
        found, count = steps[1](), steps[0]()
    after = {"w": w, "counter": count}
    b.commit(after)
    return b.finish({"logits": found, **after})


@pytest.mark.parametrize("first_update", [False, True])
def test_failures_name_the_node_and_say_whether_the_state_survived(first_update: bool) -> None:
    state = {"w": np.ones((4, 2), np.float32), "counter": np.zeros((), np.int64)}
    executor = Executor(_lookup(first_update))
    with pytest.raises(NodeError, match=r"Node \d \(aten\.embedding\)") as caught:
        executor.run_step(state, {"i": np.array([0, 9, 1])})
    assert executor.state_intact == (not first_update)
    assert caught.value.state_lost == first_update
    assert int(state["counter"]) == int(first_update)
    if not first_update:
        result = executor.run_step(state, {"i": np.array([0, 3, 1])})
        assert result.outputs["logits"].shape == (3, 2)
        assert int(state["counter"]) == 1


@pytest.mark.parametrize(
    "fault",
    [
        MemoryError("no room"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EMFILE, "Too many open files"),
        RuntimeError("can't start new thread"),
        InterruptedError(errno.EINTR, "Interrupted system call"),
        ValueError("an unexpected one"),
    ],
    ids=repr,
)
def test_a_fault_of_the_machine_is_not_one_of_the_run(fault: Exception) -> None:
    """PROTOCOL 2.8: only operands that no kernel takes are a fault of the run."""

    def kernels(index: int, node: Node, spec: OpSpec) -> Run | None:
        def run(*_: object) -> None:
            raise fault

        return run if node.op == "aten.embedding" else None

    state = {"w": np.ones((4, 2), np.float32), "counter": np.zeros((), np.int64)}
    executor = Executor(_lookup(False), kernels=kernels)
    with pytest.raises(NodeFaultError, match=r"Node \d \(aten\.embedding\)") as caught:
        executor.run_step(state, {"i": np.array([0, 3, 1])})
    assert caught.value.exit_code == 2 and not caught.value.state_lost
    assert caught.value.__cause__ is fault


def test_wrong_inputs_are_named() -> None:
    state, batch = linear_inputs()
    executor = Executor(linear_step())
    with pytest.raises(UsageError, match=r"batch\.x"):
        executor.run_step(state, {"x": batch["x"].astype(np.float64)}, LR, KEY)
    with pytest.raises(UsageError, match="'x'"):
        executor.run_step(state, {}, LR, KEY)
    with pytest.raises(UsageError, match="'lr'"):
        executor.run_step(state, batch, {}, KEY)
    with pytest.raises(UsageError, match="random"):
        executor.run_step(state, batch, LR)
    with pytest.raises(UsageError, match=r"param\.w"):
        executor.run_step({**state, "param.w": state["param.w"].T}, batch, LR, KEY)
    frozen = state["param.w"].copy()
    frozen.setflags(write=False)
    with pytest.raises(UsageError, match="read-only"):
        executor.run_step({**state, "param.w": frozen}, batch, LR, KEY)


# -- random programs ----------------------------------------------------------------------------

UNARY = ("aten.neg", "aten.relu", "aten.abs", "aten.square")
BINARY = ("aten.add.Tensor", "aten.mul.Tensor", "aten.maximum")


def _grow(b: Builder, values: list[Value], draw: st.DrawFn) -> Value:
    """One more node over earlier values: arithmetic, views of views, products, constants."""
    x = draw(st.sampled_from(values))
    shape = b.type_of(x).shape
    kind = draw(st.sampled_from(["unary", "binary", "permute", "view", "slice", "expand", "mm",
                                 "full", "cat", "softmax"]))  # fmt: skip
    if kind == "unary":
        return b.one(draw(st.sampled_from(UNARY)), [x])
    if kind == "binary":
        y = draw(st.sampled_from([v for v in values if b.type_of(v).shape == shape]))
        op = draw(st.sampled_from(BINARY))
        return b.one(op, [x, y], **({"alpha": 1.0} if "add" in op else {}))
    if kind == "permute":
        return b.one("aten.permute", [x], dims=tuple(draw(st.permutations(range(len(shape))))))
    if kind == "view":
        return b.one(
            "aten.view", [x], size=draw(st.sampled_from([(6, 4), (4, 6), (24,), (2, 3, 4)]))
        )
    if kind == "slice":
        half = b.one("aten.slice", [x], dim=0, start=0, end=shape[0] // 2, step=1)
        return b.one("aten.cat", [half, half], dim=0)
    if kind == "expand":
        row = b.one("aten.slice", [x], dim=0, start=shape[0] - 1, end=shape[0], step=1)
        return b.one("aten.expand", [row], size=shape)
    if kind == "mm":
        flat = b.one("aten.view", [x], size=(4, 6))
        turned = b.one("aten.permute", [flat], dims=(1, 0))
        square = b.one("aten.mm", [flat, turned])
        return b.one("aten.mm", [square, flat])
    if kind == "full":
        return b.one("aten.full", [], size=shape, value=draw(st.floats(-2, 2)), dtype="f32")
    if kind == "cat":
        half = b.one("aten.slice", [x], dim=0, start=shape[0] // 2, end=shape[0], step=1)
        rest = b.one("aten.slice", [x], dim=0, start=0, end=shape[0] // 2, step=1)
        return b.one("aten.cat", [half, rest], dim=0)
    return b.one("aten._softmax", [x], dim=len(shape) - 1)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    b = Builder()
    slots = {name: b.state(name, f32(4, 6)) for name in ("a", "b", "c")}
    values = [*slots.values(), b.batch("x", f32(24))]
    for _ in range(draw(st.integers(1, 18))):
        values.append(_grow(b, values, draw))
    after: dict[str, Value] = {}
    for name in slots:
        value = draw(st.sampled_from(values))
        if b.type_of(value).shape != (4, 6):
            value = b.one("aten.view", [value], size=(4, 6))
        after[name] = value
    extra = {f"metric.{i}": draw(st.sampled_from(values)) for i in range(2)}
    b.commit(after)
    program = b.finish({**after, **extra})
    return canonicalize(program) if draw(st.booleans()) else program


@settings(max_examples=300, deadline=None)
@given(programs(), st.integers(0, 5))
def test_random_programs_give_the_interpreters_bits(program: Program, seed: int) -> None:
    """Views, reuse, donation, hoisting and taps never change a bit, over several steps."""
    rng = np.random.default_rng(seed)
    state = {k: rng.standard_normal((4, 6), dtype=np.float32) for k in ("a", "b", "c")}
    tapped = {k: v.copy() for k, v in state.items()}
    executor = Executor(program)
    for _ in range(3):
        batch = {"x": rng.standard_normal(24, dtype=np.float32)}
        expected = interpret(program, named_inputs(state, batch))
        result = executor.run_step(state, batch)
        with_tap = executor.run_step(tapped, batch, tap=lambda *_: None)
        for name, array in expected.items():
            given_ = state[name] if name in state else result.outputs[name]
            assert given_.tobytes() == array.tobytes(), name
            again = tapped[name] if name in tapped else with_tap.outputs[name]
            assert again.tobytes() == array.tobytes(), name

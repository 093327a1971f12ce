"""Micro-batches one after the other make the bits of the expanded program (PROGRAM 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulated_device import Island
from micro_samples import MICRO_TEXT, ROWS, micro_inputs, micro_step
from program_samples import Arrays, f32, linear_inputs, linear_step

from tallystick import _core
from tallystick.contracts.ordered.cpu import run_of
from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.expand import expand, split_batch
from tallystick.program.folded_tail import first_fold
from tallystick.program.ir import Node, Program
from tallystick.program.repeat import RepeatedSection
from tallystick.program.runner import NodeError, NodeFaultError, Showing, StepInputs, StepResult
from tallystick.program.sectioned import SectionedExecutor, executor_of
from tallystick.program.text import parse_text

STEP, SMALL = micro_step(), parse_text(MICRO_TEXT.encode())
LR, KEY = {"lr": 0.25}, np.array([5, 9], np.int64)


def same(a: StepResult, state: Arrays, b: StepResult, other: Arrays) -> None:
    assert set(a.outputs) == set(b.outputs) and set(state) == set(other)
    for name, array in a.outputs.items():
        assert array.tobytes() == b.outputs[name].tobytes(), name
    for name, array in state.items():
        assert array.tobytes() == other[name].tobytes(), name
    assert (a.loss is None) == (b.loss is None)
    assert a.loss is None or a.loss.tobytes() == b.loss.tobytes()  # type: ignore[union-attr]


def steps(parts: int, seed: int) -> tuple[list[Arrays], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    batches = [{"x": rng.standard_normal((parts * ROWS, 4), dtype=np.float32)} for _ in range(3)]
    return batches, [np.array([5, t], np.int64) for t in range(3)]


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 5, 7, 8, 16, 31])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_bits_of_the_expansion(parts: int, threads: int) -> None:
    """Several steps, so that memory is used again."""
    context = ExecutionContext(threads)
    plain, ours = Executor(expand(STEP, parts)), SectionedExecutor(STEP, parts, context)
    (state, _), (other, _) = micro_inputs(parts), micro_inputs(parts)
    for batch, key in zip(*steps(parts, parts), strict=True):
        expected = plain.run_step(state, split_batch(batch, parts), LR, key)
        same(expected, state, ours.run_step(other, batch, LR, key), other)
        assert ours.state_intact


@pytest.mark.parametrize("isa", _core.supported_isas())
def test_every_path(isa: str) -> None:
    (state, batch), (other, _) = micro_inputs(6), micro_inputs(6)
    expected = Executor(expand(STEP, 6)).run_step(state, split_batch(batch, 6), LR, KEY)
    ours = SectionedExecutor(STEP, 6, ExecutionContext(isa=isa))
    same(expected, state, ours.run_step(other, batch, LR, KEY), other)


@pytest.mark.parametrize("parts", [255, 256, 257, 300, 513])
def test_folds_of_several_levels(parts: int) -> None:
    rng = np.random.default_rng(parts)
    state = {"buffer.n": np.zeros(2, np.float32), "param.w": rng.standard_normal(2).astype("f")}
    other = {k: v.copy() for k, v in state.items()}
    batch = {"x": rng.standard_normal(2 * parts).astype("f")}
    plain = Executor(expand(SMALL, parts)).run_step(state, split_batch(batch, parts))
    same(plain, state, SectionedExecutor(SMALL, parts).run_step(other, batch), other)


def test_the_values_may_be_anything() -> None:
    """NaN of other bits, infinities, zeros' signs, overflow in a sum, alone and in company."""
    odd = np.array([0xFFC00001, 0x7F800001, 0x80000000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1, 0],
                   np.uint32).view(np.float32)  # fmt: skip
    for parts in (1, 2, 3, 4):
        for turn in range(8):
            batch = {"x": np.roll(odd, turn)[: 2 * parts].copy()}
            state = {"buffer.n": np.zeros(2, np.float32), "param.w": np.ones(2, np.float32)}
            other = {k: v.copy() for k, v in state.items()}
            plain = Executor(expand(SMALL, parts)).run_step(state, split_batch(batch, parts))
            same(plain, state, SectionedExecutor(SMALL, parts).run_step(other, batch), other)


# -- taps ------------------------------------------------------------------------------------------
class Trace:
    """Every node as a tap sees it."""

    def __init__(self, lie: int = -1) -> None:
        self.seen: list[tuple[Any, ...]] = []
        self.lie = lie

    def __call__(
        self, index: int, node: Node, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        if index == self.lie:
            outputs[0].reshape(-1)[0] += 1
        read = tuple(None if x is None else np.array(x, order="C").tobytes() for x in inputs)
        self.seen.append((index, node, read, tuple(np.array(y).tobytes() for y in outputs)))


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize("advance", [True, False])
def test_a_tap_sees_the_expanded_nodes(parts: int, advance: bool) -> None:
    (state, batch), (other, _) = micro_inputs(parts), micro_inputs(parts)
    one, two = Trace(), Trace()
    plain, ours = Executor(expand(STEP, parts)), SectionedExecutor(STEP, parts)
    before = {k: v.copy() for k, v in state.items()}
    for _ in range(2):  # the second time from what the first left
        a = plain.run_step(state, split_batch(batch, parts), LR, KEY, one, advance)
        b = ours.run_step(other, batch, LR, KEY, two, advance)
        same(a, state, b, other)
    assert [index for index, *_ in one.seen] == 2 * list(range(len(plain.program.nodes)))
    assert one.seen == two.seen
    assert advance or all(v.tobytes() == state[k].tobytes() for k, v in before.items())
    same(plain.run_step(state, split_batch(batch, parts), LR, KEY), state,
         ours.run_step(other, batch, LR, KEY), other)  # fmt: skip


def test_a_tap_sees_the_levels_of_a_fold() -> None:
    parts, one, two = 300, Trace(), Trace()
    state = {"buffer.n": np.zeros(2, np.float32), "param.w": np.ones(2, np.float32)}
    batch = {"x": np.random.default_rng(0).standard_normal(2 * parts).astype("f")}
    Executor(expand(SMALL, parts)).run_step(
        state, split_batch(batch, parts), tap=one, advance=False
    )
    SectionedExecutor(SMALL, parts).run_step(state, batch, tap=two, advance=False)
    assert one.seen == two.seen and len(one.seen) == 2 * parts + 2 + 2


def _without_folded(seen: list[tuple[Any, ...]], program: Program) -> list[tuple[Any, ...]]:
    """What `FoldedTail.shown` shows of a trace: None for what a fold reads of the micro-batches."""
    return [
        (index, node, tuple(None for _ in read) if first_fold(program, index) else read, made)
        for index, node, read, made in seen
    ]


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
@pytest.mark.parametrize("advance", [True, False])
def test_a_step_is_shown_in_the_memory_of_one_micro_batch(parts: int, advance: bool) -> None:
    (state, batch), (other, _) = micro_inputs(parts), micro_inputs(parts)
    one, two = Trace(), Trace()
    plain, ours = Executor(expand(STEP, parts)), SectionedExecutor(STEP, parts)
    for _ in range(2):
        a = plain.run_step(state, split_batch(batch, parts), LR, KEY, one, advance)
        showing = Showing(two, advance, folded=False)
        b = ours.execute(other, StepInputs(batch, LR, KEY), showing)
        same(a, state, b, other)
    assert _without_folded(one.seen, plain.program) == two.seen
    same(plain.run_step(state, split_batch(batch, parts), LR, KEY), state,
         ours.run_step(other, batch, LR, KEY), other)  # fmt: skip


@pytest.mark.parametrize("parts", [255, 256, 257, 300, 513])
def test_levels_of_a_fold_shown_so(parts: int) -> None:
    one, two = Trace(), Trace()
    rng = np.random.default_rng(parts)
    state = {"buffer.n": np.zeros(2, np.float32), "param.w": rng.standard_normal(2).astype("f")}
    batch = {"x": rng.standard_normal(2 * parts).astype("f")}
    plain = Executor(expand(SMALL, parts))
    plain.run_step(state, split_batch(batch, parts), tap=one, advance=False)
    showing = Showing(two, advance=False, folded=False)
    SectionedExecutor(SMALL, parts).execute(state, StepInputs(batch), showing)
    assert _without_folded(one.seen, plain.program) == two.seen


class _StopError(Exception):
    pass


def test_a_node_of_a_micro_batch_is_shown_without_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the values of the whole step; others are executed where a carried slot comes from
    them."""
    parts, one = 4, Trace()
    state, batch = micro_inputs(parts)
    plain, ours = Executor(expand(STEP, parts)), SectionedExecutor(STEP, parts)
    plain.run_step(state, split_batch(batch, parts), LR, KEY, one, advance=False)
    turns: list[int] = []
    honest = RepeatedSection.turn

    def turn(self: RepeatedSection, part: int, *rest: Any) -> Any:
        turns.append(part)
        return honest(self, part, *rest)

    monkeypatch.setattr(RepeatedSection, "turn", turn)
    alone = 0
    for node in range(parts * STEP.section):
        trace = Trace()

        def tap(index: int, *rest: Any, node: int = node, trace: Trace = trace) -> None:
            if index == node:
                trace(index, *rest)
                raise _StopError

        turns.clear()
        with pytest.raises(_StopError):
            ours.show_node(state, StepInputs(batch, LR, KEY), node, tap)
        assert trace.seen == [one.seen[node]]
        part = node // STEP.section
        assert turns in ([part], list(range(part + 1)))
        alone += turns == [part]
    assert 2 * parts < alone < parts * STEP.section  # both kinds of nodes are there


@pytest.mark.parametrize("lie", range(0, 2 * STEP.section + 12))
def test_later_nodes_read_what_a_tap_wrote(lie: int) -> None:
    """A false value of any node goes on as in the expanded program: into the carried slots, the
    folds and the tail."""
    (state, batch), (other, _) = micro_inputs(2), micro_inputs(2)
    program = expand(STEP, 2)
    node = program.nodes[lie] if lie < len(program.nodes) else None
    if node is None or not node.out_types or node.out_types[0].dtype == "bool":
        return
    one, two = Trace(lie), Trace(lie)
    a = Executor(program).run_step(state, split_batch(batch, 2), LR, KEY, one)
    b = SectionedExecutor(STEP, 2).run_step(other, batch, LR, KEY, two)
    assert one.seen == two.seen
    same(a, state, b, other)


# -- hooks -----------------------------------------------------------------------------------------
class Hook:
    """Kernels that note their node's number and node, and change nothing."""

    def __init__(self, hooked: tuple[str, ...] = ()) -> None:
        self.ran: list[tuple[int, Any]] = []
        self.hooked = hooked

    def __call__(self, number: int, node: Node, spec: Any) -> Any:
        if self.hooked and node.op not in self.hooked:
            return None
        ordinary = run_of(node.op)

        def run(attrs: Any, inputs: Any, outputs: Any) -> None:
            self.ran.append((number, (node, dict(attrs))))
            ordinary(attrs, inputs, outputs)

        return run


@pytest.mark.parametrize("parts", [1, 3, 4])
@pytest.mark.parametrize("hooked", [(), ("aten.mm", "tallystick.dropout_mask")])
def test_a_hooks_kernels_run_once_for_each_expanded_node(
    parts: int, hooked: tuple[str, ...]
) -> None:
    one, two = Hook(hooked), Hook(hooked)
    (state, _), (other, _) = micro_inputs(parts), micro_inputs(parts)
    plain = Executor(expand(STEP, parts), kernels=one)
    ours = SectionedExecutor(STEP, parts, kernels=two)
    for batch, key in zip(*steps(parts, 1), strict=True):
        one.ran.clear()
        two.ran.clear()
        a = plain.run_step(state, split_batch(batch, parts), LR, key)
        same(a, state, ours.run_step(other, batch, LR, key), other)
        assert sorted(n for n, _ in two.ran) == sorted(n for n, _ in one.ran)
        assert dict(two.ran) == dict(one.ran) and one.ran
    if not hooked:
        assert any(node.op == FOLD for _, (node, _) in two.ran)


# -- memory and devices ----------------------------------------------------------------------------
def wide_step() -> Program:
    """Large activations, small parameters."""
    b = Builder()
    w, x = b.state("param.w", f32(4)), b.batch("x", f32(64, 64, 4))
    h = x
    for _ in range(4):
        h = b.one("aten.sin", [b.one("aten.mul.Tensor", [h, w])])
    slope = b.one("aten.sum.dim_IntList", [h], dim=(0, 1), keepdim=False)
    b.end_section()
    after = b.one(FOLD, [slope], mean=True)
    b.commit({"param.w": after})
    return b.finish({"param.w": after})


def test_memory_is_that_of_one_micro_batch() -> None:
    program = wide_step()
    one = SectionedExecutor(program, 1).arena_bytes
    for parts in (2, 64, 1024):
        grown = SectionedExecutor(program, parts).arena_bytes - one
        assert grown <= 16 * parts.bit_length()
    assert Executor(expand(program, 64)).arena_bytes >= one  # the plain one is free to hoist


def test_partial_sums_are_one_for_each_power_of_two() -> None:
    for parts in (1, 2, 3, 8, 100, 255, 256):
        ours = SectionedExecutor(SMALL, parts)
        state = {"buffer.n": np.zeros(2, np.float32), "param.w": np.ones(2, np.float32)}
        for _ in range(2):
            ours.run_step(state, {"x": np.ones(2 * parts, np.float32)})
            (sums,) = ours._tail.sums.values()
            assert not sums.held and len(sums.spare) <= parts.bit_length()


@pytest.mark.parametrize("parts", [1, 2, 3, 6])
@pytest.mark.parametrize("tapped", [False, True])
def test_another_device(parts: int, tapped: bool) -> None:
    """Tensors that are no arrays: state and batch on the device, results brought back."""
    device = Island()
    context = ExecutionContext(device=device)
    (state, batch), (other, _) = micro_inputs(parts), micro_inputs(parts)
    expected = Executor(expand(STEP, parts)).run_step(state, split_batch(batch, parts), LR, KEY)

    def there(arrays: Arrays) -> dict[str, Any]:
        found = {}
        for name, array in arrays.items():
            spec = next((s for s in STEP.inputs if s.name.endswith(name)), None)
            assert spec is not None
            buffer = device.allocate(array.nbytes)
            dtype = spec.type.dtype
            found[name] = device.view(buffer, 0, dtype, array.shape, array.strides)
            device.write(array, found[name])
        return found

    lies, placed = there(other), there(batch)
    ours = SectionedExecutor(STEP, parts, context)
    tap = (lambda *_: None) if tapped else None
    for given in (placed, batch) if parts == 2 else (placed,):
        fresh = there(micro_inputs(parts)[0])
        result = ours.run_step(fresh, given, LR, KEY, tap)
        for name, array in expected.outputs.items():
            assert result.outputs[name].tobytes() == array.tobytes(), name
        for name, array in state.items():
            assert device.host(fresh[name]).tobytes() == array.tobytes(), name
    assert lies


# -- errors ----------------------------------------------------------------------------------------
def test_a_refused_operand_names_the_expanded_node() -> None:
    b = Builder()
    w, i = b.state("param.w", f32(3, 2)), b.batch("i", replace(f32(2), dtype="i64"))
    rows = b.one("aten.embedding", [w, i], padding_idx=-1)
    b.end_section()
    folded = b.one(FOLD, [rows], mean=False)
    total = b.one("aten.sum", [folded])
    b.commit({"param.w": w})
    program = b.finish({"loss": total, "param.w": w})
    ours = SectionedExecutor(program, 3)
    state = {"param.w": np.ones((3, 2), np.float32)}
    good = {"i": np.array([0, 1, 2, 1, 0, 2])}
    with pytest.raises(NodeError, match=r"Node 2 \(aten.embedding\)") as raised:
        ours.run_step(state, {"i": np.array([0, 1, 2, 1, 7, 0])})
    assert raised.value.node == 2 and ours.state_intact
    # What the broken step left is in no later step.
    assert ours.run_step(state, good).loss == np.float32(12)


@pytest.mark.parametrize("shown", [False, True])
def test_a_fault_in_a_fold_names_it(monkeypatch: pytest.MonkeyPatch, shown: bool) -> None:
    ours = SectionedExecutor(SMALL, 3)
    state = {"buffer.n": np.zeros(2, np.float32), "param.w": np.ones(2, np.float32)}

    def fails(*_: Any) -> None:
        raise MemoryError

    (sums,) = ours._tail.sums.values()
    monkeypatch.setattr(sums, "run", fails)
    with pytest.raises(NodeFaultError, match=r"Node 6 \(tallystick.fold\)"):
        inputs = StepInputs({"x": np.ones(6, np.float32)})
        ours.execute(state, inputs, Showing(Trace(), folded=False) if shown else None)
    assert ours.state_intact and not sums.held


def test_refused_inputs() -> None:
    ours = SectionedExecutor(STEP, 2)
    state, batch = micro_inputs(2)
    bad: list[tuple[Any, Any, Any, str]] = [
        (state, {"x": batch["x"][:5]}, LR, "for each of 2 micro-batches"),
        (state, {"x": batch["x"].astype(np.float64)}, LR, "must be f32.* for each"),
        (state, {}, LR, "batch has no 'x'"),
        (state, batch, {}, "scalars has no 'lr'"),
        ({**state, "param.w": state["param.w"][:1]}, batch, LR, "param.w"),
        ({k: v for k, v in state.items() if k != "opt.buf.w"}, batch, LR, "opt.buf.w"),
    ]
    for given, fields, scalars, reason in bad:
        with pytest.raises(UsageError, match=reason):
            ours.run_step(given, fields, scalars, KEY)
    with pytest.raises(UsageError, match="draws random numbers"):
        ours.run_step(state, batch, LR)
    with pytest.raises(UsageError, match="Only a tapped step"):
        ours.run_step(state, batch, LR, KEY, advance=False)
    with pytest.raises(UsageError, match="executed for a number of them"):
        Executor(STEP)
    with pytest.raises(UsageError, match="between 1 and 65536"):
        SectionedExecutor(STEP, 0)


def test_executor_of_either_text() -> None:
    assert isinstance(executor_of(STEP, 2), SectionedExecutor)
    state, batch = linear_inputs()
    plain = executor_of(linear_step(), 1)
    assert isinstance(plain, Executor)
    plain.run_step(state, batch, {"lr": 0.5}, KEY)
    with pytest.raises(UsageError, match="no section"):
        executor_of(linear_step(), 2)

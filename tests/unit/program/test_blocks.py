"""Groups executed block by block: the bits of whole tensors, and less memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import f32

from tallystick.kernels.parts import leading_axes
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import TensorType
from tallystick.program import blocks, grouping
from tallystick.program.blocks import box_of, prefix, ranges
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.ir import Program, Value
from tallystick.program.plan import PlanOptions, make_plan
from tallystick.program.runner import NodeError

axes = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every value is large and a block is a few rows, so that small programs have groups."""
    monkeypatch.setattr(grouping, "LARGE", 64)
    monkeypatch.setattr(blocks, "BLOCK", 256)


# --- rows and boxes -------------------------------------------------------------------------------
@given(axes, st.integers(1, 40))
def test_ranges_are_boxes_that_cover_all_rows(outer: tuple[int, ...], wanted: int) -> None:
    rows = np.arange(math.prod(outer)).reshape(outer)
    seen: list[int] = []
    for low, high in ranges(outer, wanted):
        assert 0 < high - low <= wanted
        box = tuple(slice(*pair) for pair in box_of((low, high), outer))
        assert rows[box].reshape(-1).tolist() == list(range(low, high))
        seen += range(low, high)
    assert seen == list(range(math.prod(outer)))


@given(axes, st.data())
def test_a_prefix_covers_the_leading_axes(outer: tuple[int, ...], data: st.DataObject) -> None:
    """Any grouping of neighbouring axes, with axes of one element between, is recognised."""
    outer = tuple(size for size in outer if size != 1) or (2,)
    merged: list[int] = []
    left = list(outer)
    while left:
        count = data.draw(st.integers(1, len(left)))
        merged.append(math.prod(left[:count]))
        del left[:count]
    found = prefix((*merged, 7, 3), outer)
    assert found == len(merged)
    assert prefix((merged[0] + 1, 7), outer) is None
    assert prefix(outer[:-1], outer) is None


# --- whole programs -------------------------------------------------------------------------------
def _attention(heads: int = 3, length: int = 8, drop: bool = False) -> Program:
    """Attention of two records and its gradients, with a causal mask."""
    b, d = Builder(), 4
    q, k, v, g = (b.batch(name, f32(2, heads, length, d)) for name in "qkvg")
    three, four = (2 * heads, length, d), (2, heads, length, length)

    def view(x: Value, *size: int) -> Value:
        return b.one("aten.view", [x], size=size)

    def turned(x: Value) -> Value:
        return b.one("aten.permute", [x], dims=(0, 2, 1))

    q, k, v, g = (view(x, *three) for x in (q, k, v, g))
    ones = b.one("aten.full", [], size=(length, length), value=1.0, dtype="bool")
    mask = b.one("aten.triu", [ones], diagonal=1)
    scores = view(b.one("aten.bmm", [q, turned(k)]), *four)
    scaled = b.one("aten.mul.Scalar", [scores], other=0.5)
    hidden = b.one("aten.masked_fill", [scaled, mask], value=-math.inf)
    soft = b.one("aten._softmax", [hidden], dim=3)
    weights = soft
    if drop:
        kept = b.one("tallystick.dropout_mask", [b.rng()], shape=four, p=0.25, draw=0)
        weights = b.one("tallystick.mask_scale", [soft, kept], scale=4 / 3)
    flat = view(weights, 2 * heads, length, length)
    out = b.one("aten.bmm", [flat, v])
    # A loss: it reads the whole result before the gradient begins.
    g = b.one("aten.mul.Tensor", [g, b.one("aten.sum", [out])])
    dv = b.one("aten.bmm", [turned(flat), g])
    dw = view(b.one("aten.bmm", [g, turned(v)]), *four)
    if drop:
        dw = b.one("tallystick.mask_scale", [dw, kept], scale=4 / 3)
    ds = b.one("aten._softmax_backward_data", [dw, soft], dim=3)
    ds = b.one("aten.masked_fill", [ds, mask], value=0.0)
    ds = view(b.one("aten.mul.Scalar", [ds], other=0.5), 2 * heads, length, length)
    outs = {
        "out": out,
        "grad.v": dv,
        "grad.k": b.one("aten.bmm", [turned(ds), q]),
        "grad.q": b.one("aten.bmm", [ds, k]),
    }
    return b.finish(outs)


def _batch(program: Program) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(t.shape).astype(np.float32)
        if t.dtype == "f32"
        else rng.integers(0, 2, t.shape).astype(bool)
        for name, t in program.batch_types.items()
    }


def _results(program: Program, executor: Executor, tapped: bool = False) -> dict[str, np.ndarray]:
    def tap(*_: object) -> None:
        """Looks at nothing: a tapped step executes every node whole."""

    rng = (3, 1) if program.uses_rng else None
    result = executor.run_step({}, _batch(program), rng=rng, tap=tap if tapped else None)
    return result.outputs


def _same_bits(program: Program) -> Executor:
    """Blocks, whole tensors and a second step have one result; the executor with blocks."""
    executor = Executor(program)
    assert not any(step.parts for step in make_plan(program, PlanOptions(blocks=False)).steps)
    whole = _results(program, executor, tapped=True)
    for _ in range(2):
        by_blocks = _results(program, executor)
        assert by_blocks.keys() == whole.keys()
        for name, array in whole.items():
            assert by_blocks[name].tobytes() == array.tobytes(), name
    return executor


@pytest.mark.parametrize("drop", [False, True], ids=["plain", "dropout"])
def test_attention_has_no_whole_score_matrix(drop: bool) -> None:
    program = _attention(drop=drop)
    plan = _same_bits(program).plan
    forward, backward = [{p.node for p in step.parts} for step in plan.steps if step.parts]
    ops = [program.nodes[i].op for i in sorted(backward)]
    # The backward pass makes the weights again: one product of the forward pass, and four.
    assert ops.count("aten.bmm") == 5
    assert ops.count("aten._softmax") == 1
    assert {i for i in backward if program.nodes[i].op == "aten._softmax"} < forward
    whole = {place.shape[-1] for step in plan.steps if step.parts for place in step.outputs}
    assert whole == {4}, "results of the operands' size only"


def test_attention_takes_less_memory() -> None:
    program = _attention(heads=6, length=32)
    whole = make_plan(program, PlanOptions(blocks=False))
    assert make_plan(program).arena_bytes < 0.7 * whole.arena_bytes


def test_a_group_has_few_blocks_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 1)
    b = Builder()
    x = b.batch("x", f32(1000, 16))
    program = b.finish({"y": b.one("aten.tanh", [b.one("aten.exp", [x])])})
    (group,) = [step.parts for step in _same_bits(program).plan.steps if step.parts]
    assert 50 <= len(group) / 2 <= 80


def test_plans_with_groups_are_deterministic() -> None:
    assert make_plan(_attention(drop=True)) == make_plan(_attention(drop=True))


def test_a_chain_is_executed_by_blocks_and_its_cheap_links_again() -> None:
    b = Builder()
    x, g = b.batch("x", f32(6, 5, 8)), b.batch("g", f32(6, 5, 8))
    cube = b.one("aten.pow.Tensor_Scalar", [x], exponent=3.0)
    bent = b.one("aten.tanh", [b.one("aten.add.Tensor", [x, cube], alpha=1.0)])
    link = b.one("aten.add.Scalar", [bent], other=1.0, alpha=1.0)
    y = b.one("aten.mul.Tensor", [link, x])
    total = b.one("aten.sum", [y])
    back = b.one("aten.mul.Tensor", [g, total])
    dx = b.one("aten.tanh_backward", [b.one("aten.mul.Tensor", [back, link]), bent])
    program = b.finish({"y": y, "dx": dx})
    plan = _same_bits(program).plan
    groups = [sorted({p.node for p in step.parts}) for step in plan.steps if step.parts]
    assert groups == [[0, 1, 2, 3, 4], [3, 6, 7, 8]]


def test_a_reader_between_keeps_the_order() -> None:
    """`total` needs the whole product before the last node, so that one is no part of the group."""
    b = Builder()
    x = b.batch("x", f32(8, 16))
    one = b.one("aten.exp", [b.one("aten.neg", [x])])
    total = b.one("aten.sum", [one])
    two = b.one("aten.mul.Tensor", [one, total])
    program = b.finish({"two": two})
    groups = [{p.node for p in s.parts} for s in _same_bits(program).plan.steps if s.parts]
    assert groups == [{0, 1}]


def test_a_refusal_inside_a_block_names_its_node() -> None:
    b = Builder()
    x = b.batch("x", f32(8, 16))
    number = b.one("aten._to_copy", [x], dtype="i64")
    zero = b.one("aten.mul.Scalar", [number], other=0.0)
    program = b.finish({"y": b.one("aten.floor_divide", [number, zero])})
    executor = Executor(program)
    assert any(step.parts for step in executor.plan.steps)
    with pytest.raises(NodeError, match=r"Node 2 \(aten.floor_divide\)"):
        executor.run_step({}, _batch(program))


def test_hooked_kernels_see_whole_tensors() -> None:
    """A node's own kernel writes a log of the whole tensor, so such a step has no groups."""
    assert not any(s.parts for s in Executor(_attention(), kernels=lambda *_: None).plan.steps)


def test_an_expansion_to_more_axes_is_no_part_of_a_group() -> None:
    """Axis 0 of the result is new, though the operand's axis 0 has the same size."""
    b = Builder()
    x, g = b.batch("x", f32(8)), b.batch("g", f32(8, 8))
    wide = b.one("aten.expand", [b.one("aten.exp", [x])], size=(8, 8))
    product = b.one("aten.mul.Tensor", [wide, g])
    _same_bits(b.finish({"y": b.one("aten.tanh", [product])}))


def test_a_reduction_without_axes_is_planned() -> None:
    b = Builder()
    x = b.batch("x", f32())
    _same_bits(b.finish({"y": b.one("aten.amax", [x], dim=(0,), keepdim=True)}))


def test_groups_that_need_each_other_cost_no_other_group() -> None:
    b = Builder()
    x, y = b.batch("x", f32(8, 8)), b.batch("y", f32(8, 8))
    u, v = b.one("aten.exp", [x]), b.one("aten.exp", [y])

    def joined(p: Value, q: Value) -> Value:
        turned = b.one("aten.permute", [q], dims=(1, 0))
        return b.one("aten.tanh", [b.one("aten.add.Tensor", [p, turned], alpha=1.0)])

    s, t = joined(u, v), joined(v, u)
    total = b.one("aten.sum", [b.one("aten.add.Tensor", [s, t], alpha=1.0)])
    later = b.one("aten.mul.Tensor", [x, total])
    for _ in range(3):
        later = b.one("aten.tanh", [later])
    plan = _same_bits(b.finish({"y": later})).plan
    groups = [{p.node for p in step.parts} for step in plan.steps if step.parts]
    assert later.node in groups[-1]
    assert len(groups) > 1


def _trained() -> Program:
    """Two rows of a layer with norm, a step of its parameters, and a buffer that follows one."""
    b = Builder()
    w, gain = b.state("param.w", f32(16, 16)), b.state("param.gain", f32(16))
    mean, x, lr = b.state("buffer.mean", f32(16, 16)), b.batch("x", f32(8, 16)), b.scalar("lr")
    normed = b.emit("aten.native_layer_norm", [x, gain, None], normalized_shape=(16,), eps=0.1)[0]
    h = b.one(
        "aten.mul.Scalar",
        [
            normed,
        ],
        other=2.0,
    )
    y = b.one("aten.tanh", [b.one("aten.mm", [h, w])])
    gw = b.one("aten.mm", [b.one("aten.permute", [h], dims=(1, 0)), y])
    bent = b.one("aten.mul.Tensor", [b.one("aten.mul.Tensor", [y, h]), gain])
    gg = b.one(
        "aten.view", [b.one("aten.sum.dim_IntList", [bent], dim=(0,), keepdim=True)], size=(16,)
    )

    def sgd(p: Value, g: Value) -> Value:
        return b.emit(
            "tallystick.sgd_step", [p, g, None, lr, None],
            momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False,
        )[0]  # fmt: skip

    kept = b.one("aten.mul.Scalar", [mean], other=0.5)
    after = {
        "param.w": sgd(w, gw),
        "param.gain": sgd(gain, gg),
        "buffer.mean": b.one("aten.add.Tensor", [kept, w], alpha=0.5),
    }
    b.commit(after)
    return b.finish(after | {"metric.y": b.one("aten.sum", [y])})


def test_a_step_with_groups_trains_as_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    program = _trained()
    batch = _batch(program)
    states, copies = [], []
    for large in (64, 1 << 40):
        monkeypatch.setattr(grouping, "LARGE", large)
        executor = Executor(program)
        assert any(step.parts for step in executor.plan.steps) == (large == 64)
        state = {
            name: np.linspace(0.5, 1.5, t.numel, dtype=np.float32).reshape(t.shape)
            for name, t in program.state_types.items()
        }
        for _ in range(3):
            executor.run_step(state, batch, {"lr": 0.1})
        states.append(state)
        copies.append([slot for slot, _ in executor.plan.state_copies])
    for name, array in states[0].items():
        assert array.tobytes() == states[1][name].tobytes(), name
    assert copies[0] == copies[1], "next states are written in place as before"


# --- random programs ------------------------------------------------------------------------------
def _choices(b: Builder, values: list[Value], pick: Callable[[int], int]) -> Iterator[Value]:
    """One more node over values of shape (4, 3, 6, 6), or a view of it, per draw."""
    shape, flat = (4, 3, 6, 6), (12, 6, 6)
    ops = (
        "aten.add.Tensor", "aten.mul.Tensor", "aten.maximum", "aten.neg", "aten.tanh", "aten.relu",
        "aten._softmax", "aten._log_softmax", "aten.masked_fill", "bmm", "turned", "norm", "mean",
        "rows", "aten.gelu", "whole", "wider",
    )  # fmt: skip
    op = ops[pick(len(ops))]
    x, y = values[pick(len(values))], values[pick(len(values))]
    if op == "bmm":
        x, y = (b.one("aten.view", [v], size=flat) for v in (x, y))
        if pick(2):
            y = b.one("aten.permute", [y], dims=(0, 2, 1))
        yield b.one("aten.view", [b.one("aten.bmm", [x, y])], size=shape)
    elif op == "wider":
        part = b.one("aten.slice", [x], dim=0, start=0, end=1, step=1)
        small = b.one("aten.tanh", [b.one("aten.view", [part], size=(3, 6, 6))])
        yield b.one("aten.mul.Tensor", [b.one("aten.expand", [small], size=shape), y])
    elif op == "turned":
        yield b.one("aten.permute", [x], dims=(0, 1, 3, 2))
    elif op == "norm":
        yield b.emit("aten.native_layer_norm", [x, None, None], normalized_shape=(6,), eps=0.1)[0]
    elif op == "mean":
        mean = b.one("aten.mean.dim", [x], dim=(3,), keepdim=True)
        yield b.one("aten.expand", [mean], size=shape)
    elif op == "rows":
        row = b.one("aten.sum.dim_IntList", [x], dim=(0,), keepdim=True)
        yield b.one("aten.mul.Tensor", [y, row])
    elif op == "whole":
        yield b.one("aten.add.Tensor", [y, b.one("aten.sum", [x])], alpha=1.0)
    elif op == "aten.masked_fill":
        mask = b.one("aten.gt.Tensor", [x, y])
        yield b.one(op, [x, mask], value=0.5)
    elif "softmax" in op:
        yield b.one(op, [x], dim=pick(4))
    elif op == "aten.gelu":
        yield b.one(op, [x], approximate="none")
    elif op.endswith("Tensor") or op == "aten.maximum":
        more = {"alpha": 1.0} if "add" in op else {}
        yield b.one(op, [x, y], **more)
    else:
        yield b.one(op, [x])


@settings(max_examples=120, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=30, max_size=90), st.integers(1, 3))
def test_random_programs_have_the_bits_of_whole_tensors(draws: list[int], outputs: int) -> None:
    stream = iter(draws)

    def pick(count: int) -> int:
        return next(stream) % count

    b = Builder()
    values = [b.batch(name, f32(4, 3, 6, 6)) for name in "xyz"]
    try:
        while True:
            values += _choices(b, values, pick)
    except StopIteration:
        pass
    except RuntimeError:  # the stream ended inside of the generator
        pass
    outs = {f"out{i}": value for i, value in enumerate(values[3:][-outputs:])}
    _same_bits(b.finish(outs))


def test_no_operator_that_mixes_rows_has_leading_axes() -> None:
    t = TensorType("f32", (2, 3, 4))
    reduced = {"dim": (2, 1), "keepdim": True}
    assert leading_axes("aten.sum.dim_IntList", reduced, t) == 1
    assert leading_axes("aten.sum.dim_IntList", reduced | {"keepdim": False}, t) == 0
    assert leading_axes("aten._softmax", {"dim": -2}, t) == 1
    assert leading_axes("aten.argmax", {"dim": -1, "keepdim": True}, t) == 2
    assert leading_axes("aten.argmax", {"dim": 1, "keepdim": False}, t) == 0
    assert leading_axes("aten.argmax", {"dim": None, "keepdim": True}, t) == 0
    assert leading_axes("aten.mse_loss", {"reduction": "mean"}, t) == 0
    mixing = {name for name, spec in all_ops().items() if spec.op_class in ("scatter", "random")}
    assert leading_axes("aten.amax", {"dim": (0,), "keepdim": True}, TensorType("f32", ())) == 0
    for name in ("aten.mm", "aten.cumsum", "aten.embedding", "aten.convolution", *mixing):
        assert leading_axes(name, {}, t) == 0, name

"""Layouts, packing and order: memory is shared only where nothing can notice."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from program_samples import f32

from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Program
from tallystick.program.layout import TensorPlace, reshaped, whole
from tallystick.program.plan import ALIGNMENT, PlanOptions, Span, lower_bound, make_plan, pack
from tallystick.program.schedule import execution_order

spans = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 30)).map(
        lambda t: Span(t[0], min(t[1:]), max(t[1:]))
    ),
    max_size=40,
)


@given(spans)
def test_buffers_alive_together_do_not_overlap(given_spans: list[Span]) -> None:
    offsets, total = pack(given_spans)
    for i, (a, at) in enumerate(zip(given_spans, offsets, strict=True)):
        assert at % ALIGNMENT == 0
        assert at + a.nbytes <= total
        for b, bt in zip(given_spans[:i], offsets, strict=False):
            if a.first <= b.last and b.first <= a.last and a.nbytes and b.nbytes:
                assert at + a.nbytes <= bt or bt + b.nbytes <= at
    assert total >= lower_bound(given_spans)


@st.composite
def strided(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()):
        array = array[tuple(slice(draw(st.integers(0, n - 1)), None) for n in array.shape)]
    if draw(st.booleans()):
        array = np.broadcast_to(array, (draw(st.integers(1, 3)), *array.shape))
    return array


def _factorisations(n: int, draw: st.DrawFn) -> tuple[int, ...]:
    shape: list[int] = []
    while n > 1:
        d = draw(st.sampled_from([k for k in range(2, n + 1) if n % k == 0]))
        shape.append(d)
        n //= d
    for _ in range(draw(st.integers(0, 2))):
        shape.insert(draw(st.integers(0, len(shape))), 1)
    return tuple(shape)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_reshaping_a_view_agrees_with_numpy(data: st.DataObject) -> None:
    array = data.draw(strided())
    base = array if array.base is None else array.base
    while base.base is not None:
        base = base.base
    offset = array.ctypes.data - base.ctypes.data
    place = TensorPlace(0, offset, "f32", array.shape, tuple(array.strides))
    shape = data.draw(st.composite(lambda draw: _factorisations(array.size, draw))())
    result = reshaped(place, shape)
    copied = not np.may_share_memory(array.reshape(shape), base)
    assert (result is None) == copied
    if result is not None:
        view = np.ndarray(shape, np.float32, base, result.offset, result.strides)
        assert np.array_equal(view, array.reshape(shape))


def test_contiguity() -> None:
    assert whole(0, TensorType("f32", (2, 3))).is_contiguous
    assert not TensorPlace(0, 0, "f32", (3, 2), (4, 12)).is_contiguous
    assert TensorPlace(0, 0, "f32", (1, 3), (999, 4)).is_contiguous
    assert TensorPlace(0, 0, "f32", (0, 3), (7, 7)).is_contiguous


def _sgd(b: Builder, w: object, g: object, lr: object) -> object:
    return b.emit(
        "tallystick.sgd_step", [w, g, None, lr, None],  # type: ignore[list-item]
        momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False,
    )[0]  # fmt: skip


def _two_layers() -> Program:
    """Gradients appear last layer first; updates are written in name order at the end."""
    b = Builder()
    slots = {name: b.state(name, f32(64, 64)) for name in ("param.a", "param.b")}
    x, lr = b.batch("x", f32(64, 64)), b.scalar("lr")
    h = b.one("aten.mm", [x, slots["param.a"]])
    gb = b.one("aten.mm", [h, x])
    back = b.one("aten.mm", [gb, slots["param.b"]])
    ga = b.one("aten.mm", [back, x])
    after = {
        "param.a": _sgd(b, slots["param.a"], ga, lr),
        "param.b": _sgd(b, slots["param.b"], gb, lr),
    }
    b.commit(after)  # type: ignore[arg-type]
    return b.finish(after)  # type: ignore[arg-type]


def test_updates_run_as_soon_as_nobody_reads_the_old_value() -> None:
    program = _two_layers()
    order = execution_order(program)
    assert sorted(order) == list(range(len(program.nodes)))
    # Node 5 updates param.b: after node 2 (its last reader) and before node 3.
    assert order.index(5) == order.index(2) + 1
    assert execution_order(program, hoist=False) == list(range(len(program.nodes)))


def test_moving_updates_forward_and_writing_in_place_save_memory() -> None:
    program = _two_layers()
    default = make_plan(program)
    plain = make_plan(program, PlanOptions(reuse=False, hoist=False))
    assert not default.state_copies
    assert len(plain.state_copies) == 2
    assert default.arena_bytes < plain.arena_bytes
    assert default.arena_bytes >= default.arena_lower_bound


def test_plans_are_deterministic() -> None:
    assert make_plan(_two_layers()) == make_plan(_two_layers())

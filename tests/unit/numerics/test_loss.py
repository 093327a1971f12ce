"""Cross-entropy and nll_loss against plain numpy, bit for bit (NUMERICS 7.1 - 7.3)."""

from __future__ import annotations

import composite_reference as ref
import numpy as np
import pytest
from composite_reference import KINDS, check, check_inplace, evaluate, values
from dot_reference import quiet

from tallystick.errors import UsageError
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import TensorType

REDUCTIONS = ("mean", "sum", "none")
SHAPES = [(1, 1), (4, 7), (3, 33), (37, 130), (1500, 5), (2, 3001)]
IGNORE = -100


def _case(shape: tuple[int, int], kind: str) -> tuple[np.ndarray, np.ndarray]:
    rows, classes = shape
    t = np.random.default_rng(1).integers(0, classes, rows)
    t[::3] = IGNORE if rows > 1 else t[0]
    return values(2, shape, kind), t


def _grad(rows: int, reduction: str) -> np.ndarray:
    return values(3, (rows,)) if reduction == "none" else np.array(0.7, np.float32)


@pytest.mark.sample(3)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_cross_entropy(shape: tuple[int, int], kind: str, reduction: str) -> None:
    x, t = _case(shape, kind)
    attrs = {"ignore_index": IGNORE, "reduction": reduction}
    with quiet():
        loss, m, lse = ref.cross_entropy(x, t, IGNORE, reduction)
        check("tallystick.cross_entropy", [loss, m, lse], x, t, **attrs)
        g = _grad(shape[0], reduction)
        m, lse = ref.canonical(m), ref.canonical(lse)
        want = ref.cross_entropy_backward(g, x, t, m, lse, IGNORE, reduction)
        check("tallystick.cross_entropy_backward", [want], g, x, t, m, lse, **attrs)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_nll_loss(shape: tuple[int, int], kind: str, reduction: str) -> None:
    x, t = _case(shape, kind)
    attrs = {"ignore_index": IGNORE, "reduction": reduction}
    live = t != IGNORE
    rows = np.where(live, -x[np.arange(len(t)), np.where(live, t, 0)], np.float32(0))
    weight = np.array(live.sum(), np.float32)
    g = _grad(shape[0], reduction)
    with quiet():
        loss = ref.reduce_loss(rows, int(live.sum()), reduction)
        check("aten.nll_loss_forward", [loss, weight], x, t, **attrs)
        c = ref.coefficient(g, len(t), weight, reduction)
    want = np.zeros_like(x)
    want[np.flatnonzero(live), t[live]] = -c[live]
    check("aten.nll_loss_backward", [want], g, x, t, weight, **attrs)


def test_the_ignored_class_may_be_a_class() -> None:
    x, t = values(4, (5, 3)), np.array([0, 2, 1, 2, 0])
    for op in ("tallystick.cross_entropy", "aten.nll_loss_forward"):
        got = evaluate(op, x, t, ignore_index=2, reduction="none")[0]
        assert got[1] == got[3] == 0 and got[0] != 0
        assert not np.signbit(got[1])


def test_all_ignored_mean_is_nan_and_sum_is_zero() -> None:
    x, t = values(5, (4, 6)), np.full(4, IGNORE)
    for op in ("tallystick.cross_entropy", "aten.nll_loss_forward"):
        mean = evaluate(op, x, t, ignore_index=IGNORE, reduction="mean")[0]
        assert mean.view(np.uint32) == 0x7FC00000
        assert evaluate(op, x, t, ignore_index=IGNORE, reduction="sum")[0] == 0
    one, stat = np.array(1, np.float32), np.zeros(4, np.float32)
    attrs = {"ignore_index": IGNORE, "reduction": "mean"}
    (out,) = evaluate("tallystick.cross_entropy_backward", one, x, t, stat, stat, **attrs)
    assert not out.view(np.uint32).any()


def test_no_rows() -> None:
    x, t = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    attrs = {"ignore_index": IGNORE, "reduction": "sum"}
    loss, m, lse = evaluate("tallystick.cross_entropy", x, t, **attrs)
    assert loss == 0 and m.shape == lse.shape == (0,)


def test_gradient_may_take_the_logits_storage() -> None:
    x, t = _case((6, 45), "normal")
    attrs = {"ignore_index": IGNORE, "reduction": "mean"}
    _, m, lse = evaluate("tallystick.cross_entropy", x, t, **attrs)
    g = np.array(0.3, np.float32)
    check_inplace("tallystick.cross_entropy_backward", g, x, t, m, lse, **attrs)
    check_inplace("aten.nll_loss_backward", g, x, t, np.array(4, np.float32), **attrs)


@pytest.mark.parametrize("bad", [7, -1, 2**62, -(2**63)])
def test_target_out_of_range_is_refused(bad: int) -> None:
    x, t = values(6, (3, 7)), np.array([0, bad, 6])
    g, w, stat = np.array(1, np.float32), np.array(3, np.float32), np.zeros(3, np.float32)
    attrs = {"ignore_index": IGNORE, "reduction": "mean"}
    for op, inputs in (
        ("tallystick.cross_entropy", (x, t)),
        ("aten.nll_loss_forward", (x, t)),
        ("tallystick.cross_entropy_backward", (g, x, t, stat, stat)),
        ("aten.nll_loss_backward", (g, x, t, w)),
    ):
        with pytest.raises(UsageError, match="row 1"):
            evaluate(op, *inputs, **attrs)


def test_misuse_is_refused_by_name() -> None:
    x, t = TensorType("f32", (3, 7)), TensorType("i64", (3,))
    op = "tallystick.cross_entropy"
    good = {"ignore_index": IGNORE, "reduction": "mean"}
    for attrs, types in (
        ({**good, "reduction": "median"}, (x, t)),
        (good, (x, TensorType("i64", (4,)))),
        (good, (x, TensorType("i32", (3,)))),
        (good, (TensorType("f32", (3, 0)), t)),
        (good, (TensorType("f32", (3, 7, 1)), t)),
        (good, (x,)),
    ):
        with pytest.raises(UsageError, match=op):
            lookup(op).infer(attrs, types)
    with pytest.raises(UsageError, match="gradient"):
        row = TensorType("f32", (3,))
        lookup("tallystick.cross_entropy_backward").infer(good, (row, x, t, row, row))

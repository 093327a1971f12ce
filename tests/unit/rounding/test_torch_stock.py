"""Stock forms: every operator has one, and it computes what the operator's clause says."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from vectors.kernel_format import Case, device_groups, load

pytest.importorskip("torch", reason="the published form runs on torch")

import torch

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel, run_of
from tallystick.contracts.replay.contract import default_threshold
from tallystick.contracts.replay.stock import table
from tallystick.contracts.replay.stock.order import DrawnOrder
from tallystick.contracts.replay.stock.stock import Stock, form_of, has_form, stock_form
from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.numerics.registry import OpSpec, all_ops, rounded_operators

KINDS = {name: {a: rule.kind for a, rule in spec.attrs.items()} for name, spec in all_ops().items()}
STOCKS = {"torch": Stock(), "reordered": Stock(order=DrawnOrder(3))}
# Made of bools, integers or binary64 numbers alone: never logged (NUMERICS 14.9).
UNLOGGED = frozenset(
    f"aten.{name}.{form}"
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for form in ("Scalar", "Tensor")
) | {
    "aten.argmax",
    "aten.bitwise_and.Tensor",
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_not",
    "aten.bitwise_or.Tensor",
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_xor.Tensor",
    "aten.floor_divide",
    "aten.logical_and",
    "aten.logical_not",
    "aten.logical_or",
    "tallystick.beta_power",
    "tallystick.dropout_mask",
    "tallystick.occurrences",
    "tallystick.rank",
}


# The operators that replay/1 has.
OPS = {name: spec for name, spec in all_ops().items() if spec.is_under("replay/1")}


def cases() -> list[Case]:
    return [case for group in device_groups() for case in load(group, KINDS) if case.op in OPS]


def logged(case: Case) -> bool:
    spec = all_ops()[case.op]
    return not spec.is_unlogged and any(y.dtype == np.float32 for y in case.outputs)


def tamed(case: Case) -> tuple[list[np.ndarray | None], list[np.ndarray]]:
    """The call with operands so large or small that binary32 intermediates would overflow, vanish
    or cancel replaced, and what the ordinary kernel makes of it."""
    rng = np.random.default_rng(1)
    inputs: list[np.ndarray | None] = []
    for x in case.inputs:
        if x is not None and x.dtype == np.float32:
            size = np.abs(x)
            wild = ~(np.isfinite(x) & ((x == 0) | ((size > 1e-4) & (size < 1e3))))
            x = np.where(wild, rng.standard_normal(x.shape).astype(np.float32), x)
        inputs.append(x)
    outputs = [np.zeros(y.shape, y.dtype) for y in case.outputs]
    with np.errstate(all="ignore"):
        run_of(case.op)(dict(case.attrs), inputs, outputs)
    return inputs, outputs


def test_every_operator_has_a_stock_form() -> None:
    needed = {n for n, s in OPS.items() if not s.is_unlogged} - UNLOGGED
    assert {name for name in needed if not has_form(name)} == set()
    assert set(stock_form) <= needed, "a form of an operator that is never logged"


@pytest.mark.parametrize("kind", STOCKS)
def test_golden_calls(kind: str) -> None:
    """Binary64 results lie within binary32's own errors of the golden binary32 ones."""
    seen: Counter[str] = Counter()
    for case in cases():
        if not logged(case):
            continue
        inputs, wanted = tamed(case)
        outputs = [np.zeros(y.shape, y.dtype) for y in wanted]
        found = STOCKS[kind].compute(all_ops()[case.op], dict(case.attrs), inputs, outputs)
        assert len(found) == len(wanted)
        for x, y, out in zip(found, wanted, outputs, strict=True):
            if x is None:
                assert y.dtype != np.float32 and np.array_equal(out, y), case.op
                continue
            assert x.shape == y.shape and x.dtype == np.float64
            with np.errstate(over="ignore"):
                narrow = x.astype(np.float32)
            seen[case.op] += y.size
            scale = float(np.max(np.abs(y[np.isfinite(y)]), initial=0.0))
            same = np.isclose(narrow, y, rtol=3e-5, atol=3e-6 * scale, equal_nan=True)
            assert same.all(), (case.op, case.attrs, x[~same][:3], y[~same][:3])
    needed = {n for n, s in OPS.items() if not s.is_unlogged} - UNLOGGED
    assert all(seen[name] for name in needed), "an operator without a golden call"


def test_another_order_gives_other_bits_but_hardly_other_values() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 40, 40)).astype(np.float32)
    out = [np.zeros((40, 40), np.float32)]
    spec = all_ops()["aten.mm"]
    results = [
        s.compute(spec, {}, [a, b], out)[0]
        for s in (Stock(), Stock(order=DrawnOrder(1)), Stock(order=DrawnOrder(2)))
    ]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        x, y = results[first], results[second]
        assert x is not None and y is not None
        assert (x != y).any() and np.allclose(x, y, rtol=0, atol=1e-13)


def test_an_operator_without_a_form_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.fft"):
        form_of("aten.fft")
    made = OpSpec("test.none", lambda op, a, t: (), "1", operands=(), op_class="dot")
    with pytest.raises(UnsupportedOperatorError, match=r"test\.none"):
        Stock().compute(made, {}, [], [])


def test_indices_out_of_range_are_refused() -> None:
    grad, index = np.ones((2, 3), np.float32), np.array([0, 9])
    attrs = {"num_weights": 4, "padding_idx": -1, "scale_grad_by_freq": False}
    with pytest.raises(UsageError, match="outside"):
        Stock().compute(
            all_ops()["aten.embedding_dense_backward"],
            dict(attrs),
            [grad, index],
            [np.empty((4, 3), np.float32)],
        )
    logits, target = np.ones((2, 3), np.float32), np.array([0, 3])
    with pytest.raises(UsageError, match="classes"):
        Stock().compute(
            all_ops()["tallystick.cross_entropy"],
            {"ignore_index": -100, "reduction": "mean"},
            [logits, target],
            [np.empty((), np.float32), np.empty(2, np.float32), np.empty(2, np.float32)],
        )


def test_one_kind_follows_the_other_through_every_operator() -> None:
    """Entries of one order of additions give another order's results the same values."""
    seen: Counter[str] = Counter()
    for case in cases():
        if not logged(case):
            continue
        inputs, wanted = tamed(case)
        spec = all_ops()[case.op]
        first, second = (
            stock.compute(
                spec, dict(case.attrs), inputs, [np.zeros(y.shape, y.dtype) for y in wanted]
            )
            for stock in STOCKS.values()
        )
        for x, y in zip(first, second, strict=True):
            if x is None or y is None:
                continue
            plus = case.op in rounded_operators()
            packed = np.empty(-(-x.size // 5), np.uint8)
            value, same = np.empty(x.shape, np.float32), np.empty(x.shape, np.float32)
            _core.published_log(x, default_threshold(32), False, 32, plus, value, packed)
            _core.published_follow(y, packed, 32, plus, same)
            # Where x is noise around 0, no entry can help: the paper's d_div < eps is not given.
            noise = np.abs(x) < 1e-9 * np.max(np.abs(x), initial=0.0)
            equal = (value.view(np.uint32) == same.view(np.uint32)) | (
                np.isnan(value) & np.isnan(same)
            )
            assert (equal | noise).all(), (case.op, case.attrs, x[~equal][:3], y[~equal][:3])
            seen[case.op] += int((x != y).sum())
    assert sum(n > 0 for n in seen.values()) > 15, "another order must give other bits"


def test_tensors_of_the_device_give_what_numpy_arrays_give() -> None:
    """14.9: as tensors that stay there, of whatever strides, calls have the R(x) that they have
    here; empty operands and integer results included."""
    here, there = Stock(), Stock(opaque=True)
    seen: Counter[str] = Counter()
    for case in cases():
        spec, attrs = all_ops()[case.op], dict(case.attrs)
        if not logged(case) and case.op not in UNLOGGED:
            continue
        inputs, wanted = tamed(case)
        outputs = [np.zeros(y.shape, y.dtype) for y in wanted]
        if any(y.dtype == np.float32 for y in wanted):
            found = here.compute(spec, attrs, inputs, outputs)
        else:
            found = [None] * len(wanted)
        made = [torch.from_numpy(np.zeros(y.shape, y.dtype)) for y in wanted]
        tensors = [None if x is None else torch.from_numpy(x.copy()) for x in inputs]
        if kernel[case.op].strided:
            tensors = [x if x is None else x.mT.contiguous().mT if x.dim() > 1 else x
                       for x in tensors]  # fmt: skip
        results = there.compute_there(spec, attrs, tensors, made)
        assert len(results) == len(wanted)
        for x, result, out, y in zip(found, results, made, wanted, strict=True):
            seen[case.op] += 1
            if x is None:
                assert result is None and out.numpy().tobytes() == y.tobytes(), case.op
                continue
            assert result is not None and not out.any(), "only the caller writes an output"
            assert result.is_contiguous() and result.dtype == torch.float64
            mine, theirs = (table.nearest(r, 32, False) for r in (torch.from_numpy(x), result))
            assert mine.numpy().tobytes() == theirs.numpy().tobytes(), (case.op, attrs)
    assert set(seen) == {n for n, s in OPS.items() if not s.is_unlogged}

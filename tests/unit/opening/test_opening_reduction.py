"""Opening rules of reductions (NUMERICS 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from disputes import check_changed_operand, check_lies, sites
from harness import check_games, check_values
from reference.data import Gen

from tallystick.opening.quantity import Extremum, opening_rule
from tallystick.opening.values import WholeSource, value_of, witness_of

F32 = np.float32
MAKERS = ["floats", "wide", "mixed", "tiny"]
# shape, reduced axes: one, several, apart, all, sizes of one, 0-d
AXES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((7,), (0,)),
    ((3, 257), (1,)),
    ((300, 2), (0,)),
    ((2, 17, 31), (-1, 1)),
    ((9, 3, 40), (2, 0)),
    ((5, 1, 6, 1), (1, 2)),
    ((4, 3, 5, 2), (0, 2)),
    ((4, 3, 5, 2), (3, 1, 0)),
    ((2, 3, 4), ()),
]
ALL = {"aten.sum": {}, "aten.mean": {}, "aten.max": {}, "aten.min": {}}
DIMS = ["aten.sum.dim_IntList", "aten.mean.dim", "aten.amax", "aten.amin"]


def _attrs(op: str, axes: tuple[int, ...], keepdim: bool) -> dict[str, Any]:
    attrs: dict[str, Any] = {"dim": axes, "keepdim": keepdim}
    return {**attrs, "correction": 1.0} if op.startswith("aten.var") else attrs


@pytest.mark.parametrize("case", AXES)
@pytest.mark.parametrize("op", [*DIMS, "aten.var_mean.correction"])
def test_axes(op: str, case: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """NUMERICS 3.3: reduced axes ascending, whatever the order they are given in."""
    shape, axes = case
    for keepdim in (False, True):
        for maker in ("floats", "mixed"):
            x = getattr(Gen(f"opening {op} {case}"), maker)(*shape)
            check_values(op, _attrs(op, axes, keepdim), (x,))


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("count", [1, 31, 32, 33, 255, 256, 257, 65_537])
def test_lengths(count: int, maker: str) -> None:
    x = getattr(Gen(f"opening sum {count}"), maker)(count)
    for op, attrs in ALL.items():
        check_values(op, attrs, (x,))
    check_values("tallystick.sum_squares", {}, (x,))
    check_values("aten.argmax", {"dim": 0, "keepdim": False}, (x,))
    check_values("aten.var_mean.correction", _attrs("aten.var_mean", (0,), False), (x,))


def test_empty() -> None:
    """NUMERICS 3.1, 3.4, 3.6: n = 0 is +0, its mean and variance NaN."""
    x = np.zeros((3, 0), F32)
    check_values("aten.sum", {}, (x,))
    check_values("aten.mean", {}, (x,))
    check_values("tallystick.sum_squares", {}, (x,))
    check_values("aten.sum", {}, (x.astype(np.int64),))
    for op in ("aten.sum.dim_IntList", "aten.mean.dim", "aten.var_mean.correction"):
        check_values(op, _attrs(op, (1,), False), (x,))
        check_games(op, _attrs(op, (1,), False), (x,))
    check_games("aten.sum", {}, (x,))


@pytest.mark.parametrize("correction", [0.0, 0.5, 1.0, 7.0, 9.0, -3.0])
def test_corrections(correction: float) -> None:
    """NUMERICS 3.6: the divisor is never below 0."""
    attrs = {"dim": (1,), "keepdim": False, "correction": correction}
    x = Gen("opening correction").floats(3, 7)
    x[2] = 4.0
    check_values("aten.var_mean.correction", attrs, (x,))


def test_integers_and_bools() -> None:
    """NUMERICS 3.4: 64-bit sums that wrap; extremes of integers."""
    gen = Gen("opening integers")
    x = gen.any_ints(4, 600)
    check_values("aten.sum", {}, (x,))
    check_values("aten.sum", {}, (gen.bools(70_000),))
    for op in DIMS:
        if not op.startswith("aten.mean"):
            check_values(op, _attrs(op, (0,), True), (x,))
            check_values(op, _attrs(op, (1,), False), (x,))
    check_values("aten.argmax", {"dim": 1, "keepdim": True}, (x // 2**61,))
    check_games("aten.sum", {}, (x,))
    check_games("aten.sum.dim_IntList", {"dim": (1,), "keepdim": False}, (gen.bools(2, 600),))
    check_games("aten.amax", {"dim": (0, 1), "keepdim": False}, (x,))
    check_games("aten.argmax", {"dim": 0, "keepdim": False}, (x // 2**61,))


@pytest.mark.parametrize("shape", [(), (1,), (5, 3), (2, 300, 3)])
def test_argmax(shape: tuple[int, ...]) -> None:
    """NUMERICS 3.5: the lowest index; NaN is the largest; zeros are equal."""
    for dim in range(max(len(shape), 1)):
        for keepdim in (False, True):
            x = Gen(f"opening argmax {shape}").mixed(*shape)
            check_values("aten.argmax", {"dim": dim, "keepdim": keepdim}, (x,))
            ties = np.asarray(np.round(x) / F32(8), F32)
            check_values(
                "aten.argmax", {"dim": dim - len(shape or (1,)), "keepdim": keepdim}, (ties,)
            )
    zeros = np.array([-1, -0.0, 0.0, -0.0], F32)
    check_values("aten.argmax", {"dim": 0, "keepdim": False}, (zeros,))
    check_games("aten.argmax", {"dim": 0, "keepdim": False}, (zeros,), seed=3)


def test_extremes_of_zeros_and_nan() -> None:
    """NUMERICS 1.11: +0 is larger than -0, NaN beats all, on either side."""
    rows = np.array([[-0.0, 0.0], [0.0, -0.0], [-1, -0.0], [1, 0.0], [np.nan, 9], [9, np.nan]], F32)
    for op in ("aten.amax", "aten.amin"):
        check_values(op, _attrs(op, (1,), False), (rows,))
        for seed in range(4):
            check_games(op, _attrs(op, (1,), False), (rows,), seed=seed, most=6)


def test_a_long_extremum_is_found_in_pieces() -> None:
    x = np.zeros((1 << 20) + 9, F32)
    site, _ = sites("aten.max", {}, (x,))[0]
    quantity = opening_rule(site)
    assert isinstance(quantity, Extremum)
    for tops in ([0, 1 << 20], [(1 << 20) + 3], [5, 6]):
        x[:] = -0.0
        x[tops] = 0.0
        assert witness_of(quantity, WholeSource((x,))) == tops[0]
    assert value_of(quantity, WholeSource((x,))) == 0


@pytest.mark.parametrize("maker", ["floats", "mixed"])
@pytest.mark.parametrize("op", [*DIMS, "aten.var_mean.correction"])
def test_games(op: str, maker: str) -> None:
    x = getattr(Gen(f"opening games {op}"), maker)(3, 17, 40)
    attrs = _attrs(op, (0, 2), False)
    check_lies(op, attrs, x)
    check_games(op, attrs, (x,))


@pytest.mark.parametrize("count", [1, 256, 257, 65_537])
def test_games_about_whole_tensors(count: int) -> None:
    x = Gen(f"opening whole {count}").floats(count)
    for op in (*ALL, "tallystick.sum_squares"):
        check_games(op, {}, (x,))


def test_lies_about_variance() -> None:
    attrs = _attrs("aten.var_mean", (0,), False)
    x = Gen("opening variance").floats(70_000)
    verdicts = check_lies("aten.var_mean.correction", attrs, x)
    assert {v.quantity for v in verdicts} == {
        "RN32(var)", "SUM64(d*d)", "mean", "SUM64(x)", "RN32(mean)"
    }  # fmt: skip
    outcome = check_changed_operand(
        "aten.var_mean.correction", attrs, x, operand=0, positions=[66_000], value=9.0
    )
    assert (outcome.quantity, outcome.terms) == ("SUM64(x)", 256)


def test_infinities_of_both_signs_have_no_mean() -> None:
    """A NaN that additions make is the canonical one in every state and block (NUMERICS 1.5)."""
    x = Gen("opening infinities").floats(2, 700)
    x[0, 3], x[0, 500] = np.inf, -np.inf
    x[1, 40], x[1, 41] = -np.inf, np.inf
    for op in ("aten.sum.dim_IntList", "aten.mean.dim", "aten.var_mean.correction"):
        check_values(op, _attrs(op, (1,), False), (x,))
        check_games(op, _attrs(op, (1,), False), (x,))
    check_games("tallystick.sum_squares", {}, (x,))

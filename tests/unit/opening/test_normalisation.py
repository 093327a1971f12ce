"""Opening rules of softmax and layer_norm (NUMERICS 6.1 - 6.6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from disputes import check_changed_operand, check_lies, check_values

from tallystick import evaluate

SHAPES = [((3, 1), -1), ((4, 31), 1), ((2, 257), -1), ((2, 700, 2), 1), ((5, 3, 2), 0), ((), 0)]


def _floats(*shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.standard_normal(shape), dtype=np.float32)


def _special_rows(n: int) -> np.ndarray:
    """Rows with NaN, masked by -inf in part and wholly, +inf, zeros of both signs, and ties."""
    x = _floats(7, n)
    x[0, n // 2] = np.nan
    x[1, n // 3 :] = -np.inf
    x[2] = -np.inf
    x[3, -1] = np.inf
    x[4] = -0.0
    x[4, n // 2] = 0.0
    x[5, :] = 1.25
    return x


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("op", ["aten._softmax", "aten._log_softmax"])
def test_softmax_values(op: str, shape: tuple[int, ...], dim: int) -> None:
    check_values(op, {"dim": dim}, _floats(*shape))


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("op", ["aten._softmax_backward_data", "aten._log_softmax_backward_data"])
def test_softmax_gradient_values(op: str, shape: tuple[int, ...], dim: int) -> None:
    check_values(op, {"dim": dim}, _floats(*shape), _floats(*shape, seed=1))


@pytest.mark.parametrize("n", [2, 40, 300])
def test_special_rows(n: int) -> None:
    x = _special_rows(n)
    for op in ("aten._softmax", "aten._log_softmax"):
        check_values(op, {"dim": 1}, x, most=80)
        check_values(f"{op}_backward_data", {"dim": 1}, x, x[::-1].copy(), most=80)
    attrs = {"normalized_shape": (n,), "eps": 1e-5}
    check_values("aten.native_layer_norm", attrs, x, x[6], None, most=80)


def test_a_row_of_three_levels() -> None:
    x = _floats(1, 70_000)
    check_values("aten._softmax", {"dim": 1}, x, most=3)
    outcome = check_changed_operand(
        "aten._softmax", {"dim": 1}, x, operand=0, positions=[66_000], value=3.0
    )
    assert (outcome.quantity, outcome.clause) == ("s", "6.5")
    assert outcome.terms == 256


@pytest.mark.parametrize(("shape", "dim"), [((2, 300), 1), ((3, 20, 2), 1), ((2, 1), 1)])
def test_lies_about_softmax(shape: tuple[int, ...], dim: int) -> None:
    x, g = _floats(*shape), _floats(*shape, seed=1)
    for op in ("aten._softmax", "aten._log_softmax"):
        check_lies(op, {"dim": dim}, x)
        check_lies(f"{op}_backward_data", {"dim": dim}, g, x)


def test_lies_about_special_rows() -> None:
    x = _special_rows(300)
    for op in ("aten._softmax", "aten._log_softmax"):
        check_lies(op, {"dim": 1}, x, most=8)


def test_a_false_maximum_is_decided_by_witnesses() -> None:
    x = _floats(2, 400)
    low = check_changed_operand(
        "aten._softmax", {"dim": 1}, x, operand=0, positions=[int(x[0].argmax())], value=-9.0
    )
    high = check_changed_operand(
        "aten._log_softmax", {"dim": 1}, x, operand=0, positions=[7], value=9.0
    )
    assert low.quantity == high.quantity == "m"
    assert low.clause == high.clause == "6.8"


# --- layer_norm -----------------------------------------------------------------------------------
NORM = "aten.native_layer_norm"
NORM_SHAPES = [((3,), (3, 1)), ((700,), (2, 700)), ((3, 5), (4, 2, 3, 5)), ((257,), (257,))]


def _lengths(case: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[tuple[int, ...], tuple]:
    normalized, shape = case
    return (shape[-1:], shape) if shape == (3, 1) else (normalized, shape)


@pytest.mark.parametrize("case", NORM_SHAPES)
@pytest.mark.parametrize("affine", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_layer_norm_values(case: Any, affine: tuple[int, int]) -> None:
    normalized, shape = _lengths(case)
    w = _floats(*normalized, seed=1) if affine[0] else None
    b = _floats(*normalized, seed=2) if affine[1] else None
    attrs = {"normalized_shape": normalized, "eps": 1e-5}
    check_values(NORM, attrs, _floats(*shape), w, b)
    if w is None and b is None:
        check_values(NORM, attrs, _floats(*shape))  # absent, not None


def _gradient(
    normalized: tuple[int, ...], shape: tuple[int, ...], weighted: bool
) -> list[np.ndarray | None]:
    x = _floats(*shape)
    attrs = {"normalized_shape": normalized, "eps": 1e-5}
    _, mean, rstd = evaluate(NORM, x, None, None, **attrs)
    w = _floats(*normalized, seed=4) if weighted else None
    return [_floats(*shape, seed=3), x, mean, rstd, w, None]


@pytest.mark.parametrize("case", NORM_SHAPES)
@pytest.mark.parametrize("weighted", [True, False])
def test_layer_norm_gradient_values(case: Any, weighted: bool) -> None:
    normalized, shape = _lengths(case)
    for mask in (
        (True, True, True),
        (False, True, False),
        (True, False, True),
        (False,) * 2 + (True,),
    ):
        attrs = {"normalized_shape": normalized, "output_mask": mask}
        check_values(f"{NORM}_backward", attrs, *_gradient(normalized, shape, weighted))


def test_layer_norm_gradients_over_many_rows() -> None:
    attrs = {"normalized_shape": (2,), "output_mask": (True, True, True)}
    operands = _gradient((2,), (70_000, 2), True)
    check_values(f"{NORM}_backward", attrs, *operands, most=3)
    outcome = check_changed_operand(
        f"{NORM}_backward",
        attrs,
        *operands,
        operand=0,
        positions=[131_073],
        value=5.0,
        out=1,
        element=1,
    )
    assert (outcome.quantity, outcome.clause, outcome.terms) == ("dw", "6.5", 256)


def test_lies_about_layer_norm() -> None:
    attrs = {"normalized_shape": (700,), "eps": 1e-5}
    verdicts = check_lies(NORM, attrs, _floats(2, 700), _floats(700, seed=1), _floats(700, seed=2))
    assert {v.quantity for v in verdicts} >= {"y", "mean", "rstd", "var", "SUM(x)", "SUM(d*d)"}
    check_lies(NORM, attrs, _floats(2, 700))


def test_lies_about_layer_norm_gradients() -> None:
    attrs = {"normalized_shape": (300,), "output_mask": (True, True, True)}
    verdicts = check_lies(f"{NORM}_backward", attrs, *_gradient((300,), (270, 300), True))
    assert {v.quantity for v in verdicts} >= {"dx", "s1", "s2", "SUM(k)", "SUM(k*h)", "dw", "db"}
    check_lies(f"{NORM}_backward", attrs, *_gradient((300,), (3, 300), False))

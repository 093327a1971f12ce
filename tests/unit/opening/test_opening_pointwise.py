"""Opening rules of elementwise operators and gelu (NUMERICS 5, 6.7 - 6.11, 7.4, 8.5, 10)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import check_games, check_values
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reference.data import Gen

from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import TensorType, type_of
from tallystick.opening.quantity import (
    RefusedOperandsError,
    Site,
    opening_rule,
    rules,
)
from tallystick.opening.values import WholeSource, value_of

F32 = np.float32
KINDS = ("floats", "mixed", "tiny", "wide", "bits")
few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Attributes of operators that need some, several where they choose what is computed.
ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "aten.add.Tensor": [{"alpha": 1.0}, {"alpha": -0.1}],
    "aten.sub.Tensor": [{"alpha": 1.0}, {"alpha": 0.3}],
    "aten.add.Scalar": [{"other": 0.1, "alpha": 1.0}, {"other": -0.0, "alpha": 2.5}],
    "aten.sub.Scalar": [{"other": 0.1, "alpha": 1.0}, {"other": 1e-45, "alpha": 0.5}],
    "aten.clamp": [{"min": -0.5}, {"max": -0.0}, {"min": 0.0, "max": 1.0}],
    "aten.leaky_relu": [{"negative_slope": 0.01}],
    "aten.threshold_backward": [{"threshold": 0.0}, {"threshold": 0.25}],
    "aten.gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "aten.gelu_backward": [{"approximate": "none"}, {"approximate": "tanh"}],
    "aten.mse_loss_backward": [{"reduction": r} for r in ("mean", "sum", "none")],
    "aten.pow.Tensor_Scalar": [
        {"exponent": e} for e in (1.0, 2.0, 3.0, 0.5, -0.5, -1.0, 0.1, -7.0, float("nan"))
    ],
    "tallystick.mask_scale": [{"scale": 1 / 0.9}],
}
SCALARS = (0.0, -0.0, 1.0, 0.1, 1e-45, 1e300, float("inf"), float("nan"))
SAME_SHAPE = ("_backward", "mask_scale")
TWO = ("Tensor", "maximum", "minimum", "logical_and", "logical_or", "_backward", "mask_scale")
# On i64 alone: test_opening_whole.py.
WHOLE = {
    "aten.floor_divide",
    "aten.bitwise_xor.Tensor",
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_right_shift.Tensor",
}
OPERATORS = sorted(
    {n for n, spec in all_ops().items() if spec.op_class == "elementwise"}
    - {"aten.mse_loss", "aten._to_copy"}
    - WHOLE
    | {"aten.gelu", "aten.gelu_backward"}
)


def _attributes(op: str) -> list[dict[str, Any]]:
    if op in ATTRIBUTES:
        return ATTRIBUTES[op]
    return [{"other": v} for v in SCALARS] if op.endswith(".Scalar") else [{}]


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes, neither empty, that broadcast together."""
    shape = draw(st.lists(st.sampled_from((1, 2, 3, 5, 17)), max_size=3))
    sides = []
    for _ in range(2):
        keep = draw(st.integers(0, len(shape)))
        own = shape[len(shape) - keep :]
        sides.append(tuple(1 if draw(st.booleans()) else n for n in own))
    return sides[0], sides[1]


def _operands(op: str, shapes: tuple[Any, Any], kind: str, seed: int) -> list[np.ndarray]:
    gen = Gen(f"{op}/{kind}/{shapes}/{seed}")
    make = gen.bools if "logical" in op or "bitwise" in op else getattr(gen, kind)
    first, second = shapes
    if op.endswith(SAME_SHAPE):
        second = first
    operands = [make(*first)]
    if op.endswith(TWO):
        operands.append(gen.bools(*second) if op.endswith("mask_scale") else make(*second))
    return operands


def _calls(op: str, shapes: tuple[Any, Any], kind: str, seed: int) -> Any:
    for attrs in _attributes(op):
        operands = _operands(op, shapes, kind, seed)
        if op == "aten.mse_loss_backward":
            shape = operands[0].shape if attrs["reduction"] == "none" else ()
            operands.insert(0, getattr(Gen(f"g{seed}"), kind)(*shape))
        yield attrs, operands


@pytest.mark.parametrize("op", OPERATORS)
@few
@given(broadcasts(), st.sampled_from(KINDS), st.integers(0, 1 << 20))
def test_values(op: str, shapes: Any, kind: str, seed: int) -> None:
    for attrs, operands in _calls(op, shapes, kind, seed):
        check_values(op, attrs, operands)


@pytest.mark.parametrize("op", OPERATORS)
def test_games(op: str) -> None:
    for kind in ("floats", "mixed"):
        for attrs, operands in _calls(op, ((3, 5), (5,)), kind, 1):
            for verdict in check_games(op, attrs, operands):
                assert (verdict.clause, verdict.terms) == ("6.5", 1)


@few
@given(broadcasts(), st.integers(0, 1 << 20))
def test_integers(shapes: Any, seed: int) -> None:
    gen = Gen(f"opening integers {seed}")
    a, b = gen.any_ints(*shapes[0]), gen.any_ints(*shapes[1])
    for name in ("mul.Tensor", "maximum", "minimum", "eq.Tensor", "lt.Tensor", "ge.Tensor"):
        check_values(f"aten.{name}", {}, (a, b))
    for name in ("add", "sub"):
        check_values(f"aten.{name}.Tensor", {"alpha": 3.0}, (a, b))
        check_values(f"aten.{name}.Scalar", {"other": -5.0, "alpha": 3.0}, (a,))
    check_values("aten.mul.Scalar", {"other": 2.0**62}, (a,))
    check_values("aten.clamp", {"min": -3.0, "max": 2.0**40}, (a,))
    check_values("aten._to_copy", {"dtype": "f32"}, (a,))
    check_values("aten._to_copy", {"dtype": "bool"}, (a & 1,))


def test_conversions() -> None:
    gen = Gen("opening conversions")
    x, flags = gen.wide(4, 5, low=-5, high=60), gen.bools(4, 5)
    for operand, dtypes in (
        (x, ("i64", "bool")),
        (flags, ("f32", "i64")),
        (gen.ints(-100, 100, 7).astype(np.int32), ("i64",)),
        (gen.ints(0, 256, 7).astype(np.uint8), ("i64",)),
        (gen.any_ints(9), ("i32", "u8")),
    ):
        for dtype in dtypes:
            check_values("aten._to_copy", {"dtype": dtype}, (operand,))
            check_games("aten._to_copy", {"dtype": dtype}, (operand,))


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**63, -(2.0**64)])
def test_a_value_that_has_no_integer_is_refused(value: float) -> None:
    x = np.array([1.0, value], F32)
    site = Site("aten._to_copy", {"dtype": "i64"}, (type_of(x),), (TensorType("i64", (2,)),), 0, 1)
    with pytest.raises(RefusedOperandsError, match="_to_copy"):
        value_of(opening_rule(site), WholeSource([x]))


def test_a_mean_divides_by_the_whole_number_of_elements() -> None:
    """NUMERICS 7.4: RN32(n), n beyond 2^24 not being a binary32 number."""
    shape = (1 << 12, (1 << 13) + 1)
    g, x, y = F32(3.0), F32(0.7), F32(-0.2)
    t = TensorType("f32", shape)
    attrs: dict[str, Any] = {"reduction": "mean"}
    site = Site("aten.mse_loss_backward", attrs, (TensorType("f32", ()), t, t), (t,), 0, 12345)
    value = value_of(opening_rule(site), WholeSource([np.full(12346, v) for v in (g, x, y)]))
    assert value == (F32(2) * (x - y)) * g / F32(shape[0] * shape[1])
    assert value != (F32(2) * (x - y)) * g / F32(shape[0] * shape[1] - 4096)


class Far:
    """A tensor too large for any machine: element i is i mod 1021, and who asks is noted."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[int]]] = []

    def read(self, operand: int, flat: np.ndarray) -> np.ndarray:
        self.asked.append((operand, flat.tolist()))
        return (flat % 1021).astype(F32)


def test_no_array_of_the_size_of_the_tensor() -> None:
    n = 1 << 21
    whole, row = TensorType("f32", (n, 3, n)), TensorType("f32", (3, 1))
    at = (5 * 3 + 2) * n + n - 1
    attrs: dict[str, Any] = {"alpha": 1.0}
    source = Far()
    value = value_of(
        opening_rule(Site("aten.add.Tensor", attrs, (whole, row), (whole,), 0, at)), source
    )
    assert source.asked == [(0, [at]), (1, [2])]
    assert value == F32(at % 1021) + F32(2)


def test_each_elementwise_operator_has_a_rule() -> None:
    assert set(OPERATORS) | {"aten.mse_loss", "aten._to_copy"} <= set(rules())

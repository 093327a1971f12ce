"""Optimizer steps against plain numpy, bit for bit (NUMERICS 11)."""

from __future__ import annotations

import composite_reference as ref
import numpy as np
import pytest
from composite_reference import KINDS, check, check_inplace, evaluate, values
from dot_reference import quiet

from tallystick.errors import UsageError
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import TensorType

SIZES = [0, 1, 5, 16, 33, 1000]


def _f64(x: float) -> np.ndarray:
    return np.array(x, np.float64)


def _coefficient(present: bool) -> np.ndarray | None:
    return np.array(0.37, np.float32) if present else None


def _state(n: int, kind: str) -> tuple[np.ndarray, ...]:
    p, g, m = values(1, (n,), kind), values(2, (n,), kind), values(3, (n,), kind)
    return p, g, m, np.abs(values(4, (n,), kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SIZES)
def test_adam_and_adamw(n: int, kind: str) -> None:
    attrs = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    scalars = _f64(3e-4), _f64(0.9**3), _f64(0.999**3)
    tensors = _state(n, kind)
    for name, decoupled in (("adamw", True), ("adam", False)):
        for weight_decay in (0.0, 0.1):
            for c in (_coefficient(False), _coefficient(True)):
                own = {**attrs, "weight_decay": weight_decay}
                with quiet():
                    want = ref.adam(decoupled, *tensors, *scalars, c, **own)
                op = f"tallystick.{name}_step"
                check(op, list(want), *tensors, *scalars, c, **own)
                check_inplace(op, *tensors, *scalars, c, **own)


def test_adam_large_enough_for_threads() -> None:
    own = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
    scalars = _f64(6e-4), _f64(0.9), _f64(0.95)
    p, g, m, v = (a.reshape(410, 500) for a in _state(205_000, "normal"))
    want = list(ref.adam(True, p, g, m, v, *scalars, None, **own))
    check("tallystick.adamw_step", want, p, g, m, v, *scalars, **own)


def test_adam_with_extreme_scalars() -> None:
    tensors = _state(40, "normal")
    own = {"beta1": 0.9, "beta2": 0.999, "eps": 0.0, "weight_decay": 0.01}
    # A power of exactly 1 divides by zero; above 1 the root is NaN; a NaN rate spreads.
    for scalars in (
        (_f64(0.1), _f64(1.0), _f64(1.0)),
        (_f64(0.1), _f64(0.5), _f64(1.5)),
        (_f64(np.nan), _f64(0.5), _f64(0.5)),
        (_f64(1e300), _f64(0.5), _f64(0.5)),
    ):
        with quiet():
            want = ref.adam(True, *tensors, *scalars, None, **own)
        check("tallystick.adamw_step", list(want), *tensors, *scalars, **own)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", SIZES)
def test_sgd(n: int, kind: str) -> None:
    p, g, buf, _ = _state(n, kind)
    lr = _f64(0.05)
    for momentum, dampening, nesterov in (
        (0.0, 0.0, False),
        (0.9, 0.0, False),
        (0.9, 0.1, False),
        (0.9, 0.0, True),
    ):
        for weight_decay in (0.0, 5e-4):
            for c in (_coefficient(False), _coefficient(True)):
                own = {
                    "momentum": momentum,
                    "dampening": dampening,
                    "weight_decay": weight_decay,
                    "nesterov": nesterov,
                }
                buffer = buf if momentum else None
                with quiet():
                    want = ref.sgd(p, g, buffer, lr, c, **own)
                check("tallystick.sgd_step", list(want), p, g, buffer, lr, c, **own)
                check_inplace("tallystick.sgd_step", p, g, buffer, lr, c, **own)


def test_beta_power_is_one_rounded_product() -> None:
    p = np.float64(1)
    for _ in range(50):
        (got,) = evaluate("tallystick.beta_power", np.asarray(p), beta=0.999)
        p = p * np.float64(0.999)
        ref.assert_bits(got, np.asarray(p), "beta_power")
    (got,) = evaluate("tallystick.beta_power", _f64(np.nan), beta=0.5)
    assert got.view(np.uint64) == 0x7FF8000000000000


@pytest.mark.parametrize("count", [1, 2, 33, 148, 1100])
def test_clip_coef(count: int) -> None:
    squares = [np.asarray(x) for x in np.abs(values(5, (count,)))]
    norm = np.sqrt(ref.total(np.array(squares, np.float32)))
    want = np.minimum(np.float32(1.5) / (norm + np.float32(1e-6)), np.float32(1))
    check("tallystick.clip_coef", [want.reshape(()), norm.reshape(())], *squares, max_norm=1.5)


def test_clip_coef_of_zero_nan_and_infinity() -> None:
    for value, coefficient in ((0.0, 1.0), (np.nan, np.nan), (np.inf, 0.0), (1e-45, 1.0)):
        with quiet():
            got, norm = evaluate("tallystick.clip_coef", np.array(value, np.float32), max_norm=1.0)
        ref.assert_bits(got, np.array(coefficient, np.float32), f"coefficient of {value}")
        assert norm == np.sqrt(np.float32(value)) or np.isnan(value)


P, S, L = TensorType("f32", (4,)), TensorType("f32", ()), TensorType("f64", ())
ADAM = {"beta1": 0.9, "beta2": 0.9, "eps": 0.0, "weight_decay": 0.0}
SGD = {"momentum": 0.9, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False}
PLAIN = {**SGD, "momentum": 0.0}
BAD = [
    ("tallystick.beta_power", {"beta": 0.9}, (S,)),
    ("tallystick.adamw_step", ADAM, (P, P, P, TensorType("f32", (5,)), L, L, L)),
    ("tallystick.adamw_step", ADAM, (P, P, P, P, L, L, S)),
    ("tallystick.adamw_step", ADAM, (P, P, P, P, L, L)),
    ("tallystick.adam_step", ADAM, (P, P, P, P, L, L, L, P)),
    ("tallystick.adam_step", ADAM, (P, P, P, P, L, L, L, S, S)),
    ("tallystick.sgd_step", SGD, (P, P, None, L)),
    ("tallystick.sgd_step", PLAIN, (P, P, P, L)),
    ("tallystick.sgd_step", SGD, (P, P, P, S)),
    ("tallystick.clip_coef", {"max_norm": 1.0}, ()),
    ("tallystick.clip_coef", {"max_norm": 1.0}, (S, P)),
]


@pytest.mark.parametrize("op, attrs, types", BAD)
def test_misuse_is_refused_by_name(op: str, attrs: dict, types: tuple) -> None:
    with pytest.raises(UsageError, match=op):
        lookup(op).infer(attrs, types)

"""evaluate: names, defaults, layouts and refusals (DESIGN 9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tallystick
from tallystick.errors import UnsupportedOperatorError, UnsupportedVersionError, UsageError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.contracts import resolve_contract

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def array(op: str, *operands: Any, **attributes: Any) -> np.ndarray:
    result = evaluate(op, *operands, **attributes)
    assert isinstance(result, np.ndarray)
    return result


def test_is_the_package_s_own_function() -> None:
    assert tallystick.evaluate is evaluate


def test_overloads_are_found_from_the_base_name() -> None:
    assert np.array_equal(array("aten.add", X, X), X + X)
    assert np.array_equal(array("aten.add", X, other=2), X + 2)
    assert np.array_equal(array("aten.sum", X), X.sum())
    assert np.array_equal(array("aten.sum", X, dim=1), X.sum(axis=1))
    assert np.array_equal(array("aten.sum", X, dim=[0, -1], keepdim=True), X.sum(keepdims=True))
    assert np.array_equal(array("aten.pow", X, exponent=2), X * X)
    var, mean = evaluate("aten.var_mean", X, dim=0)
    assert np.array_equal(mean, X.mean(axis=0)) and np.array_equal(var, X.var(axis=0, ddof=1))


def test_defaults_are_aten_s() -> None:
    assert array("aten.slice", X, dim=1, start=1).shape == (3, 3)
    assert array("aten.arange", end=5).dtype == np.int64
    assert array("aten.full", size=(2, 3), value=1.0).dtype == np.float32
    x, w = np.ones((1, 2, 4, 4), np.float32), np.ones((3, 2, 3, 3), np.float32)
    assert array("aten.convolution", x, w, None).shape == (1, 3, 2, 2)
    assert array("aten.convolution", x, w, None, padding=1, stride=2).shape == (1, 3, 2, 2)


def test_a_result_is_a_new_array() -> None:
    x = X.copy()
    y = array("aten.view", x, size=(4, 3))
    assert not np.shares_memory(x, y) and y.flags.c_contiguous
    assert array("aten.exp", np.float32(0.0).reshape(())).shape == ()
    assert array("aten.exp", np.float32(0.0)) == 1


@pytest.mark.parametrize("contract", ["ordered/1", "ordered/1-draft.1"])
def test_known_contracts(contract: str) -> None:
    assert resolve_contract(contract) == "ordered/1-draft.1"
    assert array("aten.neg", X, contract=contract)[0, 1] == -1


def test_records_and_unaligned_views_are_read() -> None:
    records = np.zeros(5, dtype=[("tag", "u1"), ("value", "<f4")])
    records["value"] = [1, 2, 3, 4, 5]
    assert array("aten.neg", records["value"]).tolist() == [-1, -2, -3, -4, -5]
    assert array("aten.mul", X[::-1, ::2], X[:, 1::2]).shape == (3, 2)


BAD: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("aten.exp", (X,), {"contract": "ordered/9"}, UnsupportedVersionError, "ordered/9"),
    ("aten.nonsense", (X,), {}, UnsupportedOperatorError, "nonsense"),
    ("aten.ex", (X,), {}, UnsupportedOperatorError, "aten.exp"),
    ("aten.exp", (X.astype(np.float64),), {}, UsageError, "aten.exp"),
    ("aten.exp", (X.astype(">f4"),), {}, UsageError, "dtype"),
    ("aten.exp", (X.astype(np.float16),), {}, UsageError, "f16"),
    ("aten.exp", ([1.0],), {}, UsageError, "not a numpy array"),
    ("aten.exp", (), {}, UsageError, "aten.exp"),
    ("aten.exp", (X, X), {}, UsageError, "aten.exp"),
    ("aten.exp", (None,), {}, UsageError, "aten.exp"),
    ("aten.mm", (X, X), {}, UsageError, "aten.mm"),
    ("aten.mm", (X, X.T), {"alpha": 1.0}, UsageError, "alpha"),
    ("aten.mm", (X, None), {}, UsageError, "aten.mm"),
    ("aten.add", (X, X), {"alpha": "two"}, UsageError, "alpha"),
    ("aten.add", (X, X), {"alpha": True}, UsageError, "alpha"),
    ("aten.add", (X, X[:2]), {}, UsageError, "broadcast"),
    ("aten.mul", (X,), {"other": 2**53 + 1}, UsageError, "other"),
    ("aten.sum", (X,), {"dim": 7}, UsageError, "aten.sum"),
    ("aten.sum", (X,), {"dim": (0, 0)}, UsageError, "aten.sum"),
    ("aten.argmax", (X,), {}, UsageError, "dim"),
    ("aten.amax", (X[:0],), {"dim": 0}, UsageError, "aten.amax"),
    ("tallystick.beta_power", (np.float64(1.0),), {}, UsageError, "beta"),
    ("aten.view", (X,), {"size": (5,)}, UsageError, "aten.view"),
    ("aten.embedding", (X, np.array([3])), {}, UsageError, "embedding"),
    ("aten._to_copy", (np.array([np.nan], np.float32),), {"dtype": "i64"}, UsageError, "_to_copy"),
]


@pytest.mark.parametrize(("op", "operands", "attributes", "error", "said"), BAD)
def test_refusals_name_what_is_wrong(
    op: str, operands: tuple[Any, ...], attributes: dict[str, Any], error: Any, said: str
) -> None:
    with pytest.raises(error, match=said.replace(".", r"\.")):
        evaluate(op, *operands, **attributes)

"""Softmax, layer_norm and gelu against plain numpy, bit for bit (NUMERICS 6)."""

from __future__ import annotations

import composite_reference as ref
import numpy as np
import pytest
from composite_reference import KINDS, check, check_inplace, evaluate, values
from dot_reference import quiet

from tallystick.contracts.ordered.cpu import run_of
from tallystick.errors import UsageError
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import TensorType

ROWS = [(1, 1), (3, 7), (2, 16), (5, 33), (2, 64), (40, 100), (2, 1024), (2, 1057), (1, 2100)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ROWS)
def test_softmax_family(shape: tuple[int, int], kind: str) -> None:
    x, g = values(1, shape, kind), values(2, shape, kind)
    with quiet():
        y, ly = ref.softmax(x), ref.log_softmax(x)
        check("aten._softmax", [y], x, dim=1)
        check("aten._log_softmax", [ly], x, dim=1)
        check("aten._softmax_backward_data", [ref.softmax_backward(g, y)], g, y, dim=1)
        check("aten._log_softmax_backward_data", [ref.log_softmax_backward(g, ly)], g, ly, dim=1)


def test_softmax_along_any_axis() -> None:
    x, g = values(3, (3, 5, 4), "special"), values(4, (3, 5, 4))
    for dim in (0, 1, 2, -2):
        with quiet():
            y = ref.softmax(np.moveaxis(x, dim, -1))
            back = ref.softmax_backward(np.moveaxis(g, dim, -1), y)
        want, want_back = np.moveaxis(y, -1, dim), np.moveaxis(back, -1, dim)
        check("aten._softmax", [want], x, dim=dim)
        check("aten._softmax_backward_data", [want_back], g, want, dim=dim)


def test_softmax_of_scalar_and_of_nothing() -> None:
    check("aten._softmax", [np.ones((), np.float32)], np.array(-3.5, np.float32), dim=0)
    check("aten._log_softmax", [np.zeros((), np.float32)], np.array(2.0, np.float32), dim=-1)
    for shape in ((0, 4), (4, 0), (0,), (2, 0, 3)):
        empty = np.zeros(shape, np.float32)
        check("aten._softmax", [empty], empty, dim=1 if len(shape) > 1 else 0)


def test_softmax_row_of_minus_infinity_is_nan() -> None:
    x = np.full((1, 40), -np.inf, np.float32)
    (y,) = evaluate("aten._softmax", x, dim=1)
    assert (y.view(np.uint32) == 0x7FC00000).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (40, 100), (1030, 3), (2, 1057), (33, 70)])
def test_layer_norm(shape: tuple[int, int], kind: str) -> None:
    x, g = values(5, shape, kind), values(6, shape, kind)
    w, b = values(7, shape[1:]), values(8, shape[1:])
    attrs = {"normalized_shape": shape[1:]}
    with quiet():
        for weight, bias in ((w, b), (w, None), (None, b), (None, None)):
            y, mean, rstd = ref.layer_norm(x, weight, bias, 1e-5)
            check("aten.native_layer_norm", [y, mean, rstd], x, weight, bias, **attrs, eps=1e-5)
        mean, rstd = ref.canonical(mean), ref.canonical(rstd)
        for weight in (w, None):
            want = ref.layer_norm_backward(g, x, mean, rstd, weight)
            args = ("aten.native_layer_norm_backward", list(want), g, x, mean, rstd, weight, b)
            check(*args, **attrs, output_mask=(True, True, True))


def test_layer_norm_several_axes_and_masks() -> None:
    x, g = values(9, (6, 3, 5)), values(10, (6, 3, 5))
    w = values(11, (3, 5))
    attrs = {"normalized_shape": (3, 5)}
    y, mean, rstd = ref.layer_norm(x.reshape(6, 15), w.reshape(-1), None, 0.25)
    statistics = mean.reshape(6, 1, 1), rstd.reshape(6, 1, 1)
    want = [y.reshape(x.shape), *statistics]
    check("aten.native_layer_norm", want, x, w, None, **attrs, eps=0.25)
    dx, dw, db = ref.layer_norm_backward(
        g.reshape(6, 15), x.reshape(6, 15), mean, rstd, w.reshape(-1)
    )
    full = [dx.reshape(x.shape), dw.reshape(3, 5), db.reshape(3, 5)]
    for mask in (
        (True, False, False),
        (False, True, True),
        (False, False, True),
        (True, True, False),
    ):
        picked = [f for f, on in zip(full, mask, strict=True) if on]
        args = ("aten.native_layer_norm_backward", picked, g, x, *statistics, w, None)
        check(*args, **attrs, output_mask=mask)


def test_layer_norm_without_rows_or_elements() -> None:
    x = np.zeros((0, 4), np.float32)
    y, mean, rstd = evaluate("aten.native_layer_norm", x, normalized_shape=(4,), eps=1e-5)
    assert y.shape == (0, 4) and mean.shape == rstd.shape == (0, 1)
    attrs = {"normalized_shape": (4,), "output_mask": (True, True, True)}
    dx, dw, db = evaluate("aten.native_layer_norm_backward", x, x, mean, rstd, **attrs)
    assert dx.shape == (0, 4) and not dw.any() and not np.signbit(db).any()
    y, mean, rstd = evaluate(
        "aten.native_layer_norm", np.zeros((3, 0), np.float32), normalized_shape=(0,), eps=1e-5
    )
    assert (mean.view(np.uint32) == 0x7FC00000).all() and y.size == 0  # +0 / +0


def test_layer_norm_gradient_of_weight_may_take_a_lone_row() -> None:
    x, g = values(12, (70,)), values(13, (70,))
    attrs = {"normalized_shape": (70,), "output_mask": (False, True, False)}
    _, mean, rstd = evaluate("aten.native_layer_norm", x, normalized_shape=(70,), eps=1e-5)
    (want,) = evaluate("aten.native_layer_norm_backward", g, x, mean, rstd, **attrs)
    run_of("aten.native_layer_norm_backward")(attrs, [g, x, mean, rstd], [g])
    ref.assert_bits(g, want, "dw in g's storage")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 5, 16, 31, 1000, 10007])
def test_gelu(n: int, kind: str) -> None:
    x, g = values(14, (n,), kind), values(15, (n,), kind)
    with quiet():
        check("aten.gelu", [ref.gelu_erf(x)], x, approximate="none")
        check("aten.gelu", [ref.gelu_tanh(x)], x, approximate="tanh")
        back = [ref.gelu_erf_backward(g, x)]
        check("aten.gelu_backward", back, g, x, approximate="none")
        back = [ref.gelu_tanh_backward(g, x)]
        check("aten.gelu_backward", back, g, x, approximate="tanh")


def test_outputs_may_share_storage() -> None:
    x, g = values(16, (9, 45)), values(17, (9, 45))
    for name in ("aten._softmax", "aten._log_softmax"):
        for dim in (0, 1):
            check_inplace(name, x, dim=dim)
            check_inplace(f"{name}_backward_data", g, x, dim=dim)
    check_inplace("aten.gelu", x, approximate="none")
    check_inplace("aten.gelu_backward", g, x, approximate="tanh")
    check_inplace("aten.native_layer_norm", x, x[0], g[0], normalized_shape=(45,), eps=1e-5)
    _, mean, rstd = evaluate("aten.native_layer_norm", x, normalized_shape=(45,), eps=1e-5)
    attrs = {"normalized_shape": (45,), "output_mask": (True, True, True)}
    check_inplace("aten.native_layer_norm_backward", g, x, mean, rstd, x[0], **attrs)


def test_strided_inputs_are_their_values() -> None:
    wide = values(18, (20, 90), "special")
    with quiet():
        check("aten._softmax", [ref.softmax(wide[::2, ::3])], wide[::2, ::3], dim=1)
        check("aten.gelu", [ref.gelu_erf(wide.T)], wide.T, approximate="none")


F32, I64 = TensorType("f32", (2, 3)), TensorType("i64", (2, 3))
BAD = [
    ("aten._softmax", {"dim": 2}, (F32,)),
    ("aten._softmax", {"dim": 0}, (I64,)),
    ("aten._softmax_backward_data", {"dim": 0}, (F32, TensorType("f32", (3, 2)))),
    ("aten._softmax_backward_data", {"dim": 0}, (F32,)),
    ("aten.gelu", {"approximate": "cubic"}, (F32,)),
    ("aten.native_layer_norm", {"normalized_shape": (2,), "eps": 0.0}, (F32,)),
    ("aten.native_layer_norm", {"normalized_shape": (), "eps": 0.0}, (F32,)),
    ("aten.native_layer_norm", {"normalized_shape": (1, 2, 3), "eps": 0.0}, (F32,)),
    ("aten.native_layer_norm", {"normalized_shape": (3,), "eps": 0.0}, (F32, F32)),
    ("aten.native_layer_norm", {"normalized_shape": (3,), "eps": 0.0}, (F32, None, None, None)),
    (
        "aten.native_layer_norm_backward",
        {"normalized_shape": (3,), "output_mask": (True, True)},
        (F32, F32, TensorType("f32", (2, 1)), TensorType("f32", (2, 1))),
    ),
    (
        "aten.native_layer_norm_backward",
        {"normalized_shape": (3,), "output_mask": (True, True, True)},
        (F32, F32, TensorType("f32", (2,)), TensorType("f32", (2, 1))),
    ),
]


@pytest.mark.parametrize("op, attrs, types", BAD)
def test_misuse_is_refused_by_name(op: str, attrs: dict, types: tuple) -> None:
    with pytest.raises(UsageError, match=op):
        lookup(op).infer(attrs, types)

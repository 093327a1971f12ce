"""softmax, normalisation, losses, pooling, places and cumulative sums on the emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_calls import agree, call, check_vectors, nasty, there
from emulated_gpu import emulated_gpu

from tallystick import evaluate
from tallystick.contracts.ordered.cuda import reduction
from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.sequence import CallFailedError
from tallystick.errors import RefusedOperandsError
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.program.layout import new_tensor

SOFTMAX = {
    *("aten._softmax", "aten._log_softmax"),
    *("aten._softmax_backward_data", "aten._log_softmax_backward_data"),
}
LAYER, LAYER_BACKWARD = "aten.native_layer_norm", "aten.native_layer_norm_backward"
BATCH, BATCH_BACKWARD, BATCH_RUNNING = (
    "aten._native_batch_norm_legit_functional",
    "aten.native_batch_norm_backward",
    "aten._native_batch_norm_legit_no_training",
)
CE, CE_BACKWARD = "tallystick.cross_entropy", "tallystick.cross_entropy_backward"
NLL, NLL_BACKWARD = "aten.nll_loss_forward", "aten.nll_loss_backward"
POOL, POOL_BACKWARD = "aten.max_pool2d_with_indices", "aten.max_pool2d_with_indices_backward"
OPERATORS = {
    *SOFTMAX,
    *(LAYER, LAYER_BACKWARD, BATCH, BATCH_BACKWARD, BATCH_RUNNING),
    *(CE, CE_BACKWARD, NLL, NLL_BACKWARD, "aten.mse_loss"),
    *("aten.cumsum", "tallystick.rank", "tallystick.occurrences", POOL, POOL_BACKWARD),
}


@pytest.fixture(scope="module")
def gpu() -> Cuda:
    return emulated_gpu(seed=23)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("seed", [1, 2])
def test_golden_vectors(seed: int) -> None:  # NUMERICS 3.8, 3.9, 6.1 to 6.6, 6.12 to 6.16, 7
    found = check_vectors(emulated_gpu(seed), ops=OPERATORS)
    assert found.operators == OPERATORS and found.calls > 700
    assert found.wrong == []


# --- softmax (6.1 - 6.4) --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((), 0), ((9, 33), 1), ((2, 1500), -1), ((3, 40, 5), 1), ((1025, 3), 0), ((4, 1), 1)],
)
def test_softmax(gpu: Cuda, shape: tuple[int, ...], dim: int) -> None:
    rng = np.random.default_rng(len(shape) + abs(dim))
    for x in (normal(rng, *shape) * np.float32(5), nasty(rng, shape)):
        agree(gpu, "aten._softmax", [x], dim=dim)
        agree(gpu, "aten._log_softmax", [x], dim=dim)
        agree(gpu, "aten._softmax_backward_data", [nasty(rng, shape), x], dim=dim)
        agree(gpu, "aten._log_softmax_backward_data", [nasty(rng, shape), x], dim=dim)


# --- layer_norm (6.5, 6.6) ------------------------------------------------------------------------
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (5, 33), (3, 1025), (300, 40), (3, 0), (0, 5)])
def test_layer_norm(gpu: Cuda, rows: int, n: int) -> None:
    rng = np.random.default_rng(rows + n)
    x, g, w, b = normal(rng, rows, n), nasty(rng, (rows, n)), normal(rng, n), normal(rng, n)
    shape: dict[str, Any] = {"normalized_shape": (n,)}
    for weight, bias in ((w, b), (w, None), (None, b), (None, None)):
        agree(gpu, LAYER, [x, weight, bias], **shape)
    _, mean, rstd = evaluate(LAYER, x, **shape)
    for mask in (
        (True, True, True),
        (False, True, True),
        (True, False, True),
        (False, False, True),
    ):
        for weight in (w, None):
            arrays = [g, x, mean, rstd, weight, None]
            agree(gpu, LAYER_BACKWARD, arrays, output_mask=mask, **shape)


def test_layer_norm_gradients_of_a_weight_in_the_place_of_an_operand(gpu: Cuda) -> None:
    """6.6: with one row, dw has the type of g, so a plan may give it g's memory."""
    rng = np.random.default_rng(6)
    arrays = [normal(rng, 300), normal(rng, 300), normal(rng, 1), normal(rng, 1)]
    attrs = {"normalized_shape": (300,), "output_mask": (False, True, True)}
    expected = call(CPU, LAYER_BACKWARD, attrs, arrays)
    for source in (0, 1):
        got = call(gpu, LAYER_BACKWARD, attrs, arrays, shared=(source, 0))
        assert [x.tobytes() for x in got] == [x.tobytes() for x in expected]


# --- batch_norm (6.12 - 6.14) ---------------------------------------------------------------------
@pytest.mark.parametrize(
    "shape", [(1, 1), (40, 3), (5, 7, 3, 3), (2, 3, 700), (9, 2, 1050), (0, 2)]
)
def test_batch_norm(gpu: Cuda, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(shape))
    x, g, c = normal(rng, *shape), nasty(rng, shape), shape[1]
    w, b, mean, var = (normal(rng, c) for _ in range(4))
    var = abs(var)
    for weight, bias in ((w, b), (None, b), (w, None)):
        agree(gpu, BATCH, [x, weight, bias, mean, var], momentum=0.1, eps=1e-5)
        agree(gpu, BATCH_RUNNING, [x, weight, bias, mean, var], eps=1e-5)
    agree(gpu, BATCH, [x, w, b])
    for mask in (
        (True, True, True),
        (True, False, False),
        (False, True, False),
        (False, True, True),
    ):
        train = [g, x, w, None, None, mean, var]
        agree(gpu, BATCH_BACKWARD, train, train=True, output_mask=mask)
        agree(gpu, BATCH_BACKWARD, [g, x, None, mean, var], train=False, output_mask=mask)


# --- losses (7) -----------------------------------------------------------------------------------
@pytest.mark.parametrize(("rows", "classes"), [(1, 1), (40, 10), (3, 1500), (0, 4), (300, 3)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(gpu: Cuda, rows: int, classes: int, reduction: str) -> None:
    rng = np.random.default_rng(rows + classes)
    x, target = normal(rng, rows, classes) * np.float32(4), rng.integers(0, classes, rows)
    for ignore in (-100, int(target[0]) if rows else 0):
        target[rows // 2 :][:1] = ignore
        attrs: dict[str, Any] = {"ignore_index": ignore, "reduction": reduction}
        agree(gpu, CE, [x, target], **attrs)
        agree(gpu, NLL, [x, target], **attrs)
        g = normal(rng, rows) if reduction == "none" else np.float32(0.7).reshape(())
        _, row_max, row_sum = evaluate(CE, x, target, **attrs)
        agree(gpu, CE_BACKWARD, [g, x, target, row_max, row_sum], **attrs)
        total = np.float32(rows).reshape(())
        agree(gpu, NLL_BACKWARD, [g, x, target, total], **attrs)
        agree(gpu, "aten.mse_loss", [x, x[::-1].copy()], reduction=reduction)


@pytest.mark.parametrize("bad", [-1, 5, 2**40, -(2**63)])
def test_a_target_that_is_no_class_is_refused(gpu: Cuda, bad: int) -> None:  # NUMERICS 7.1
    rng = np.random.default_rng(1)
    x, target = normal(rng, 6, 5), np.array([0, 4, 1, bad, 2, 3])
    column, scalar = normal(rng, 6), np.float32(1).reshape(())
    for op, arrays in (
        (CE, [x, target]),
        (CE_BACKWARD, [scalar, x, target, column, column]),
        (NLL, [x, target]),
        (NLL_BACKWARD, [scalar, x, target, scalar]),
    ):
        with pytest.raises(RefusedOperandsError, match="position 3"):
            call(gpu, op, {}, arrays)
        gpu.driver.check()  # type: ignore[attr-defined]
    agree(gpu, CE, [x, target], ignore_index=bad)


def test_a_refusal_stops_a_recorded_step(gpu: Cuda) -> None:  # NUMERICS 1.13
    rng = np.random.default_rng(2)
    x, good, bad = normal(rng, 4, 3), np.array([0, 1, 2, 0]), np.array([0, 1, 2, 3])
    table = gpu.kernels(find_contract("ordered/1"))
    logits, target = there(gpu, x), there(gpu, good)
    outputs = [new_tensor(gpu, TensorType("f32", shape)) for shape in ((), (4,), (4,))]
    attrs = {"ignore_index": -100, "reduction": "mean"}
    step = gpu.sequence([(table[CE].run, attrs, [logits, target], outputs)])
    for _ in range(3):
        step.run()
    assert gpu.host(outputs[0]).tobytes() == np.asarray(evaluate(CE, x, good)[0]).tobytes()
    gpu.write(bad, target)
    with pytest.raises(CallFailedError):
        step.run()
    gpu.write(good, target)
    step.run()


# --- max pooling (6.15, 6.16) ---------------------------------------------------------------------
@pytest.mark.parametrize(
    "attrs",
    [
        {"kernel_size": (2, 2), "stride": (2, 2)},
        {"kernel_size": (3, 2), "stride": (1, 2), "padding": (1, 1)},
        {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": True},
        {"kernel_size": (2, 3), "stride": (3, 1), "dilation": (3, 2), "padding": (1, 0)},
    ],
)
def test_max_pool(gpu: Cuda, attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(len(attrs))
    x = np.round(nasty(rng, (2, 3, 11, 9)), 1)
    agree(gpu, POOL, [x], **attrs)
    y, index = evaluate(POOL, x, **attrs)
    agree(gpu, POOL_BACKWARD, [nasty(rng, y.shape), x, index], **attrs)
    # Indices that no pooling made: any place of the plane may get any source.
    index[0, 1] = rng.integers(0, 99, index.shape[2:])
    index[1, 2] = 98
    agree(gpu, POOL_BACKWARD, [nasty(rng, y.shape), x, index], **attrs)
    index[1, 0, 0, 0] = 99
    with pytest.raises(RefusedOperandsError):
        call(gpu, POOL_BACKWARD, attrs, [y, x, index])
    gpu.driver.check()  # type: ignore[attr-defined]


# --- occurrences (3.10) ---------------------------------------------------------------------------
@pytest.mark.parametrize("length", [0, 1, 300])
@pytest.mark.parametrize("classes", [0, 1, 7, 300])
@pytest.mark.parametrize("rows", [0, 5])
def test_occurrences(gpu: Cuda, length: int, classes: int, rows: int) -> None:
    rng = np.random.default_rng(length + classes)
    first, last = rng.integers(-9, 310, rows), rng.integers(-9, 320, rows)
    first[1:3], last[2:4] = -(2**63), 2**63 - 1
    tokens = rng.integers(-2, 8, length)
    agree(gpu, "tallystick.occurrences", [tokens, first, last], classes=classes)


# --- cumulative sums and places (3.8, 3.9) --------------------------------------------------------
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((), 0), ((1,), 0), ((33, 70), 1), ((70, 33), 0), ((2, 5, 3), 1), ((3, 3000), 1)],
)
@pytest.mark.parametrize("narrow", [0, reduction.NARROW])
def test_places_and_cumulative_sums(
    gpu: Cuda, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], dim: int, narrow: int
) -> None:
    monkeypatch.setattr(reduction, "NARROW", narrow)
    rng = np.random.default_rng(len(shape) + dim)
    x, whole = nasty(rng, shape), rng.integers(-9, 9, shape)
    if narrow:
        agree(gpu, "aten.cumsum", [x], dim=dim)
    for descending in (False, True):
        agree(gpu, "tallystick.rank", [x], dim=dim, descending=descending)
        agree(gpu, "tallystick.rank", [np.round(x)], dim=dim, descending=descending)
        agree(gpu, "tallystick.rank", [whole], dim=dim, descending=descending)
        agree(gpu, "tallystick.rank", [whole * 2**59], dim=dim, descending=descending)

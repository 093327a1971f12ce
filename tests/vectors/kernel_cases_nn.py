"""The calls of the golden vectors: composites, losses, random, movement, optimizers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from kernel_cases import EMPTY, Call
from reference.data import SPECIAL, Gen
from reference.floats import F32

_BIG_SEED = np.array([2**63 - 1, 2**32 - 1], np.int64)


def composite() -> Iterator[Call]:
    g = Gen("composite")
    shapes = (((3, 5), 1), ((4, 33), -1), ((2, 3, 4), 1), ((7, 3), 0), ((2, 1100), 1), ((1,), 0),
              ((), 0), ((0, 4), 1), ((5, 0), 1), ((3, 1), 1))  # fmt: skip
    for shape, dim in shapes:
        for make in (g.floats, g.mixed) if math.prod(shape) < 100 else (g.floats,):
            x = make(*shape)
            for name in ("_softmax", "_log_softmax"):
                yield f"aten.{name}", {"dim": dim}, [x]
            for name in ("_softmax_backward_data", "_log_softmax_backward_data"):
                yield f"aten.{name}", {"dim": dim}, [make(*shape), x]
    masked = np.array([[0, -np.inf, 1], [-np.inf] * 3, [np.inf, 0, 1], [3e38, -3e38, 0]], F32)
    yield "aten._softmax", {"dim": 1}, [masked]
    yield "aten._log_softmax", {"dim": 1}, [masked]
    norms: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((3, 7), (7,)), ((2, 3, 33), (33,)), ((2, 4, 5), (4, 5)), ((3, 1), (1,)),
        ((1, 1100), (1100,)), ((0, 5), (5,)), ((70, 67), (67,)), ((6,), (6,)), ((3, 0), (0,)),
    )  # fmt: skip
    for shape, normal in norms:
        small = math.prod(shape) < 100
        for w, b in ((1, 1), (1, 0), (0, 1), (0, 0)) if small else ((1, 1),):
            x = g.mixed(*shape) if shape == (3, 7) and w and b else g.floats(*shape)
            weight = g.floats(*normal) if w else None
            bias = g.floats(*normal) if b else None
            attrs: dict[str, Any] = {"normalized_shape": normal, "eps": 1e-5}
            yield "aten.native_layer_norm", attrs, [x, weight, bias]
            lead = (*shape[: len(shape) - len(normal)], *(1 for _ in normal))
            stats = [g.floats(*lead), np.abs(g.floats(*lead))]
            mask = (True, True, True) if w else ((True, False, False) if b else (False, True, True))
            back = {"normalized_shape": normal, "output_mask": mask}
            yield (
                "aten.native_layer_norm_backward",
                back,
                [g.floats(*shape), x, *stats, weight, bias],
            )
    yield "aten.native_layer_norm", {"normalized_shape": (8,), "eps": 0.0}, [
        np.ones((2, 8), F32), None, None]  # fmt: skip
    many = np.concatenate([SPECIAL, g.floats(50), g.bits(20), g.span(-6, 6, 40)])
    for approximate in ("none", "tanh"):
        attrs = {"approximate": approximate}
        for x in (many, EMPTY, g.floats(1), g.floats(3, 5)):
            yield "aten.gelu", attrs, [x]
        yield "aten.gelu_backward", attrs, [np.roll(many, 3), many]
        yield "aten.gelu_backward", attrs, [g.floats(4, 9), g.floats(4, 9)]
        yield "aten.gelu_backward", attrs, [EMPTY, EMPTY]


def loss() -> Iterator[Call]:
    g = Gen("loss")
    for rows, classes in ((4, 7), (1, 1), (3, 1030), (9, 33), (0, 5)):
        for reduction in ("mean", "sum", "none"):
            attrs = {"ignore_index": -100, "reduction": reduction}
            make = g.mixed if (rows, reduction) == (4, "sum") else g.floats
            x, t = make(rows, classes), g.ints(0, classes, rows)
            if rows == 9:
                t[2] = t[5] = -100
            if rows == 4:
                attrs["ignore_index"] = int(t[1])
            grad = g.floats(rows) if reduction == "none" else g.floats()
            yield "tallystick.cross_entropy", attrs, [x, t]
            stats = [g.floats(rows), g.span(1, 9, rows)]
            yield "tallystick.cross_entropy_backward", attrs, [grad, x, t, *stats]
            yield "aten.nll_loss_forward", attrs, [x, t]
            weight = np.asarray(F32(max(rows - 1, 1)))
            yield "aten.nll_loss_backward", attrs, [grad, x, t, weight]
    nothing = {"ignore_index": 2, "reduction": "mean"}
    x, t = g.floats(2, 4), np.array([2, 2], np.int64)
    yield "tallystick.cross_entropy", nothing, [x, t]
    yield "aten.nll_loss_forward", nothing, [x, t]
    many = np.concatenate([SPECIAL, g.floats(40), g.bits(20)])
    for reduction in ("mean", "sum", "none"):
        attrs = {"reduction": reduction}
        for a, b in ((g.floats(3, 41), g.floats(3, 41)), (many, np.roll(many, 7)), (EMPTY, EMPTY),
                     (g.floats(1), g.floats(1)), (g.floats(1029), g.floats(1029))):  # fmt: skip
            yield "aten.mse_loss", attrs, [a, b]
            grad = g.floats(*a.shape) if reduction == "none" else g.floats()
            yield "aten.mse_loss_backward", attrs, [grad, a, b]


def random() -> Iterator[Call]:
    g = Gen("random")
    keys = [np.array([0, 0], np.int64), np.array([1234567890123, 77], np.int64), _BIG_SEED]
    for i, key in enumerate(keys):
        for shape in ((), (1,), (3, 5), (67,), (259,), (0,)):
            attrs: dict[str, Any] = {"draw": (0, 3, 2**32 - 1)[i], "shape": shape}
            for p in (0.1, 0.0, 0.5, 1.0 - 2.0**-40) if shape == (67,) else (0.1,):
                yield "tallystick.dropout_mask", {**attrs, "p": p}, [key]
            low, high = ((0.0, 1.0), (-0.3, 0.7), (1e30, -1e38))[i]
            yield "tallystick.uniform", {**attrs, "low": low, "high": high}, [key]
            mean, std = ((0.0, 1.0), (0.5, 0.02), (-1.0, 3e38))[i]
            yield "tallystick.normal", {**attrs, "mean": mean, "std": std}, [key]
    for scale in (1.0 / 0.9, 0.0, 2.0, float("inf")):
        many = np.concatenate([SPECIAL, g.floats(30)])
        yield "tallystick.mask_scale", {"scale": scale}, [many, g.bools(len(many))]
    yield "tallystick.mask_scale", {"scale": 2.0}, [EMPTY, np.zeros(0, bool)]


def scatter() -> Iterator[Call]:
    g = Gen("scatter")
    for shape, weights, width in (
        ((3, 7), 5, 4),
        ((60,), 3, 33),
        ((0,), 4, 3),
        ((2,), 2, 1),
        ((5,), 9, 70),
    ):
        for padding in (-1, 1):
            attrs = {"num_weights": weights, "padding_idx": padding, "scale_grad_by_freq": False}
            make = g.mixed if weights == 5 else g.floats
            index = g.ints(0, weights, *shape)
            yield "aten.embedding_dense_backward", attrs, [make(*shape, width), index]
            yield "aten.embedding", {"padding_idx": padding}, [g.mixed(weights, width), index]
    negative = np.full((2, 3), F32(-0.0))
    yield "aten.embedding_dense_backward", {
        "num_weights": 2, "padding_idx": -1, "scale_grad_by_freq": False,
    }, [negative, np.array([1, 1], np.int64)]  # fmt: skip
    for shape, dim, n in (
        ((5, 4), 0, 9),
        ((3, 6, 5), 1, 8),
        ((4, 7), 1, 3),
        ((6,), 0, 20),
        ((2, 3), 0, 0),
    ):
        make = g.mixed if n == 9 else g.floats
        source = make(*shape[:dim], n, *shape[dim + 1 :])
        index = g.ints(0, shape[dim], n)
        yield "aten.index_add", {"dim": dim}, [make(*shape), index, source]


def move() -> Iterator[Call]:
    g = Gen("move")
    odd = g.mixed(4, 6)
    odd[0, 1] = np.uint32(0x7FA12345).view(F32)  # a NaN of its own bits: movement keeps them
    for x in (odd, g.any_ints(4, 6), g.bools(4, 6)):
        yield "aten.view", {"size": (3, 8)}, [x]
        yield "aten.permute", {"dims": (1, 0)}, [x]
        yield "aten.slice", {"dim": 1, "start": 1, "end": 6, "step": 2}, [x]
        yield "aten.slice_scatter", {"dim": 0, "start": 1, "end": 3, "step": 1}, [x, x[2:]]
        yield "aten.cat", {"dim": 1}, [x, x[:, :0], x[:, 1:3]]
        yield "aten.expand", {"size": (2, 4, 6)}, [x[:1] if x is odd else x]
        index = g.ints(0, 4, 3, 5)
        yield "aten.gather", {"dim": 0}, [x, index]
        yield "aten.index_select", {"dim": 1}, [x, g.ints(0, 6, 7)]
        yield "aten.where", {}, [g.bools(4, 1), x, np.roll(x, 1)]
        yield "aten.masked_fill", {"value": 1.0}, [x, g.bools(6)]
        yield "aten.tril", {"diagonal": -1}, [x]
        yield "aten.triu", {"diagonal": 2}, [x]
    yield "aten.expand", {"size": (3, 4, 5)}, [g.floats(4, 1)]
    yield "aten.where", {}, [g.bools(70), SPECIAL[:1], g.mixed(3, 70)]
    yield "aten.masked_fill", {"value": float("-inf")}, [g.floats(3, 33), g.bools(3, 33)]
    yield "aten.masked_fill", {"value": -0.0}, [g.floats(0), np.zeros(0, bool)]
    yield "aten.gather", {"dim": 1}, [g.floats(5, 40), g.ints(0, 40, 5, 1)]
    yield "aten.tril", {"diagonal": 0}, [g.floats(2, 5, 4)]
    for dtype, value in (
        ("f32", 0.1),
        ("f64", 0.1),
        ("i64", -7.0),
        ("bool", 1.0),
        ("f32", float("nan")),
    ):
        yield "aten.full", {"size": (2, 3), "value": value, "dtype": dtype}, []
    yield "aten.full", {"size": (), "value": -0.0, "dtype": "f32"}, []
    ranges = ((0.0, 5.0, 1.0, "i64"), (0.0, 1.0, 0.1, "f32"), (5.0, -3.0, -2.0, "i64"),
              (1.0, 2.0, 0.3, "f32"), (3.0, 1.0, 1.0, "f32"))  # fmt: skip
    for start, end, step, dtype in ranges:
        yield "aten.arange", {"start": start, "end": end, "step": step, "dtype": dtype}, []


def _f64(value: float) -> np.ndarray:
    return np.asarray(value, np.float64)


def optimizer() -> Iterator[Call]:
    g = Gen("optimizer")
    for beta, p in ((0.9, 1.0), (0.999, 0.9980009990000001), (0.95, 5e-324)):
        yield "tallystick.beta_power", {"beta": beta}, [_f64(p)]
    for n in (0, 1, 37, 130):
        for decay in (0.0, 0.1):
            adam = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": decay}
            make = g.mixed if n == 37 else g.floats
            p, grad, m, v = make(n), make(n), g.floats(n, scale=0.1), np.abs(make(n))
            tail = [_f64(1e-3), _f64(0.9**3), _f64(0.999**3)]
            clip = [] if decay else [np.asarray(F32(0.37))]
            for name in ("adamw_step", "adam_step"):
                yield f"tallystick.{name}", adam, [p, grad, m, v, *tail, *clip]
                yield f"tallystick.{name}", adam, [p, grad, m, v, *tail, *([None] if clip else [])]
            for momentum, dampening, nesterov in ((0.0, 0.0, False), (0.9, 0.0, False),
                                                  (0.9, 0.1, False), (0.9, 0.0, True)):  # fmt: skip
                sgd: dict[str, Any] = {
                    "momentum": momentum,
                    "dampening": dampening,
                    "weight_decay": decay,
                    "nesterov": nesterov,
                }
                buf = g.floats(n) if momentum else None
                yield "tallystick.sgd_step", sgd, [p, grad, buf, _f64(0.01), *clip]
    tiny = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    cold = [np.zeros(5, F32), np.zeros(5, F32)]
    for name in ("adamw_step", "adam_step"):
        yield f"tallystick.{name}", tiny, [
            g.floats(5), g.tiny(5), *cold, _f64(3e-4), _f64(0.9), _f64(0.999)]  # fmt: skip
    for values in ([3.0, 1e-20, 2.5], [0.0], [float("inf"), 1.0], [float("nan")], [1e-9] * 40):
        scalars = [np.asarray(F32(v)) for v in values]
        yield "tallystick.clip_coef", {"max_norm": 1.0}, scalars
        yield "tallystick.clip_coef", {"max_norm": 0.1}, scalars

"""Composites, losses, scatter, random and optimizers against the reference (4, 6, 7, 8, 11)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from property_tools import check, drawn, few, fewer, kinds, laid_out, layouts, paths, pooled, seeds
from reference.data import Gen
from reference.floats import F32

rows_ = st.integers(0, 4)
widths = st.sampled_from((1, 2, 7, 16, 33))


@fewer
@given(seeds, rows_, widths, st.integers(0, 2), kinds, layouts, paths)
def test_softmax(
    seed: int, m: int, n: int, dim: int, kind: str, layout: str, path: tuple[str, int]
) -> None:
    shape = [2, max(m, int(dim != 0)), 3]
    shape[dim] = n
    x, g = (drawn(seed + i, kind, tuple(shape), layout) for i in range(2))
    for name in ("_softmax", "_log_softmax"):
        check(f"aten.{name}", {"dim": dim}, [x], path)
    for name in ("_softmax_backward_data", "_log_softmax_backward_data"):
        check(f"aten.{name}", {"dim": dim}, [g, x], path)


@fewer
@given(seeds, rows_, widths, kinds, layouts, st.booleans(), st.booleans(),
       st.sampled_from((1e-5, 0.0, 1e-12)), paths)  # fmt: skip
def test_layer_norm(
    seed: int, m: int, n: int, kind: str, layout: str, weight: bool, bias: bool, eps: float,
    path: tuple[str, int],
) -> None:  # fmt: skip
    x, g = (drawn(seed + i, kind, (m, n), layout) for i in range(2))
    w = drawn(seed + 2, kind, (n,), layout) if weight else None
    b = drawn(seed + 3, kind, (n,), layout) if bias else None
    attrs: dict[str, Any] = {"normalized_shape": (n,), "eps": eps}
    check("aten.native_layer_norm", attrs, [x, w, b], path)
    mean, rstd = drawn(seed + 4, kind, (m, 1)), drawn(seed + 5, "floats", (m, 1))
    mask = {"normalized_shape": (n,), "output_mask": (True, bool(seed & 1), bool(seed & 2))}
    check("aten.native_layer_norm_backward", mask, [g, x, mean, rstd, w, b], path)


@fewer
@given(seeds, st.integers(0, 35), kinds, layouts, st.sampled_from(("none", "tanh")), paths)
def test_gelu(seed: int, n: int, kind: str, layout: str, form: str, path: tuple[str, int]) -> None:
    x, g = (drawn(seed + i, kind, (2, n), layout) for i in range(2))
    check("aten.gelu", {"approximate": form}, [x], path)
    check("aten.gelu_backward", {"approximate": form}, [g, x], path)


reductions = st.sampled_from(("mean", "sum", "none"))


@few
@given(seeds, rows_, widths, kinds, layouts, reductions, st.booleans(), paths)
def test_losses(
    seed: int, m: int, n: int, kind: str, layout: str, reduction: str, ignore: bool,
    path: tuple[str, int],
) -> None:  # fmt: skip
    gen = Gen(f"loss{seed}")
    x, t = drawn(seed, kind, (m, n), layout), gen.ints(0, n, m)
    attrs = {"ignore_index": int(t[0]) if ignore and m else -100, "reduction": reduction}
    g = drawn(seed + 1, kind, (m,) if reduction == "none" else ())
    check("tallystick.cross_entropy", attrs, [x, t], path)
    row_max, row_sum = drawn(seed + 2, kind, (m,)), drawn(seed + 3, "floats", (m,))
    check("tallystick.cross_entropy_backward", attrs, [g, x, t, row_max, row_sum], path)
    check("aten.nll_loss_forward", attrs, [x, t], path)
    check("aten.nll_loss_backward", attrs, [g, x, t, np.asarray(F32(m))], path)
    y = drawn(seed + 4, kind, (m, n), layout)
    check("aten.mse_loss", {"reduction": reduction}, [x, y], path)
    shape = (m, n) if reduction == "none" else ()
    grad = drawn(seed + 5, kind, shape, layout)
    check("aten.mse_loss_backward", {"reduction": reduction}, [grad, x, y], path)


@few
@given(
    seeds, st.integers(0, 40), st.integers(1, 6), widths, kinds, layouts, st.integers(-1, 3), paths
)
def test_scatter(
    seed: int, sources: int, rows: int, width: int, kind: str, layout: str, padding: int,
    path: tuple[str, int],
) -> None:  # fmt: skip
    index = Gen(f"scatter{seed}").ints(0, rows, sources)
    attrs = {"num_weights": rows, "padding_idx": padding, "scale_grad_by_freq": False}
    grad = drawn(seed, kind, (sources, width), layout)
    check("aten.embedding_dense_backward", attrs, [grad, laid_out(index, layout)], path)
    check(
        "aten.index_add",
        {"dim": 0},
        [drawn(seed + 1, kind, (rows, width), layout), index, grad],
        path,
    )
    swapped = [
        drawn(seed + 1, kind, (2, rows, 3), layout),
        index,
        drawn(seed, kind, (2, sources, 3)),
    ]
    check("aten.index_add", {"dim": 1}, swapped, path)


@fewer
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1),
       st.integers(0, 70), st.floats(0, 1, exclude_max=True), paths)  # fmt: skip
def test_random(seed: int, step: int, draw: int, n: int, p: float, path: tuple[str, int]) -> None:
    rng = np.array([seed, step], np.int64)
    attrs = {"draw": draw, "shape": (n,)}
    check("tallystick.dropout_mask", {**attrs, "p": p}, [rng], path)
    check("tallystick.uniform", {**attrs, "low": -p, "high": 3 * p}, [rng], path)
    check("tallystick.normal", {**attrs, "mean": p, "std": 2 * p}, [rng], path)


unit = st.floats(0, 1, exclude_max=True)


@few
@given(
    seeds,
    st.integers(0, 40),
    kinds,
    layouts,
    unit,
    unit,
    unit,
    st.integers(1, 9),
    st.booleans(),
    paths,
)
def test_optimizers(
    seed: int, n: int, kind: str, layout: str, beta1: float, beta2: float, decay: float,
    t: int, clip: bool, path: tuple[str, int],
) -> None:  # fmt: skip
    p, g, m = (drawn(seed + i, kind, (n,), layout) for i in range(3))
    v = np.abs(drawn(seed + 3, kind, (n,)))
    lr, b1p, b2p = (np.asarray(x, np.float64) for x in (decay * 0.01, beta1**t, beta2**t))
    c = drawn(seed + 4, "floats", ()) if clip else None
    attrs = {"beta1": beta1, "beta2": beta2, "eps": 1e-8, "weight_decay": decay}
    for name in ("adamw_step", "adam_step"):
        check(f"tallystick.{name}", attrs, [p, g, m, v, lr, b1p, b2p, c], path)
    check("tallystick.beta_power", {"beta": beta1}, [b1p], path)
    sgd: dict[str, Any] = {"dampening": 0.0 if clip else beta1, "weight_decay": decay}
    for momentum, nesterov in ((0.0, False), (0.9, False), (0.9, clip)):
        more = {**sgd, "momentum": momentum, "nesterov": nesterov}
        check("tallystick.sgd_step", more, [p, g, m if momentum else None, lr, c], path)
    squares = [x.reshape(()) for x in np.abs(p)]
    if squares:
        check("tallystick.clip_coef", {"max_norm": beta2}, squares, path)


def test_work_that_threads_share() -> None:
    x, g = pooled(1, (300, 401)), drawn(2, "floats", (300, 401))
    check("aten._softmax", {"dim": 1}, [x])
    check("aten._softmax_backward_data", {"dim": 1}, [g, x])
    mask = {"normalized_shape": (401,), "output_mask": (True, True, True)}
    statistics = [drawn(3, "floats", (300, 1)), drawn(4, "floats", (300, 1))]
    check("aten.native_layer_norm_backward", mask, [g, x, *statistics, g[0], g[1]])
    check("aten.gelu", {"approximate": "tanh"}, [pooled(5, (20_001,))])
    index = Gen("threads").ints(0, 50, 3000)
    attrs = {"num_weights": 50, "padding_idx": -1, "scale_grad_by_freq": False}
    check("aten.embedding_dense_backward", attrs, [drawn(6, "floats", (3000, 67)), index])
    n = 140_001
    wide = [drawn(i, "floats", (n,)) for i in range(3)]
    adam = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.01}
    scalars = [np.asarray(s, np.float64) for s in (1e-3, 0.9, 0.999)]
    check("tallystick.adamw_step", adam, [*wide, np.abs(wide[0]), *scalars, None])
    rng = np.array([7, 9], np.int64)
    check("tallystick.dropout_mask", {"draw": 1, "shape": (20_003,), "p": 0.1}, [rng])

"""Normalisation, losses, scatter and optimizers for benchmarks/accuracy.py; see accuracy_cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as fn
from torch.optim.adam import adam as torch_adam
from torch.optim.adamw import adamw as torch_adamw
from torch.optim.sgd import sgd as torch_sgd

from accuracy_cases import (
    ATEN,
    HEAD,
    ROWS,
    SCALAR_DRAWS,
    VOCABULARY,
    WIDTH,
    Case,
    Inputs,
    Rng,
    many,
    normal,
)


def _softmax(x: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.from_numpy(x), -1).numpy()


def _normalisation() -> list[Case]:
    dim, norm = {"dim": 2}, {"normalized_shape": (WIDTH,)}
    head = many(1, 24, ROWS, HEAD)

    def back(logarithm: bool) -> Callable[[Rng], Inputs]:
        def make(r: Rng) -> Inputs:
            y = _softmax(normal(r, 24, ROWS, HEAD))
            return [normal(r, 24, ROWS, HEAD), np.log(y) if logarithm else y]

        return make

    def affine(r: Rng) -> Inputs:
        return [
            normal(r, 256, WIDTH) + np.float32(0.3),
            1 + normal(r, WIDTH, scale=0.1),
            normal(r, WIDTH),
        ]

    def layer_norm(x: Any, w: Any, b: Any) -> Any:
        return ATEN.native_layer_norm(x, [WIDTH], w, b, 1e-5)

    def affine_back(r: Rng) -> Inputs:
        x, w, b = affine(r)
        mean, rstd = layer_norm(*(torch.from_numpy(a) for a in (x, w, b)))[1:]
        return [normal(r, 256, WIDTH), x, mean.numpy(), rstd.numpy(), w, b]

    def layer_norm_back(g: Any, x: Any, mean: Any, rstd: Any, w: Any, b: Any) -> Any:
        return ATEN.native_layer_norm_backward(g, x, [WIDTH], mean, rstd, w, b, [True] * 3)

    return [
        Case("aten._softmax", head, lambda x: torch.softmax(x, -1), dim),
        Case(
            "aten._softmax",
            many(1, 8, VOCABULARY),
            lambda x: torch.softmax(x, -1),
            {"dim": 1},
            "vocabulary",
        ),
        Case("aten._log_softmax", head, lambda x: torch.log_softmax(x, -1), dim),
        Case(
            "aten._softmax_backward_data",
            back(False),
            lambda g, y: ATEN._softmax_backward_data(g, y, -1, y.dtype),
            dim,
        ),
        Case(
            "aten._log_softmax_backward_data",
            back(True),
            lambda g, y: ATEN._log_softmax_backward_data(g, y, -1, y.dtype),
            dim,
        ),
        Case(
            "aten.native_layer_norm",
            affine,
            layer_norm,
            {**norm, "eps": 1e-5},
            "",
            ("y", "mean", "rstd"),
        ),
        Case(
            "aten.native_layer_norm_backward",
            affine_back,
            layer_norm_back,
            {**norm, "output_mask": (True, True, True)},
            "",
            ("input", "weight", "bias"),
        ),
    ]


def _losses() -> list[Case]:
    def labelled(r: Rng) -> Inputs:
        return [normal(r, ROWS, 1003), r.integers(0, 1003, ROWS)]

    def likelihood(r: Rng) -> Inputs:
        x, t = labelled(r)
        return [torch.log_softmax(torch.from_numpy(x), -1).numpy(), t]

    cases = []
    for reduction, code in (("mean", 1), ("sum", 2)):
        attrs = {"ignore_index": -100, "reduction": reduction}
        cases += [
            Case(
                "tallystick.cross_entropy",
                labelled,
                lambda x, t, n=reduction: fn.cross_entropy(x, t, reduction=n),
                attrs,
                reduction,
                draws=SCALAR_DRAWS,
            ),
            Case(
                "aten.nll_loss_forward",
                likelihood,
                lambda x, t, c=code: ATEN.nll_loss_forward(x, t, None, c, -100)[0],
                attrs,
                reduction,
                draws=SCALAR_DRAWS,
            ),
            Case(
                "aten.nll_loss_backward",
                lambda r: [
                    np.float32(0.7).reshape(()),
                    *likelihood(r),
                    np.float32(ROWS).reshape(()),
                ],
                lambda g, x, t, w, c=code: ATEN.nll_loss_backward(g, x, t, None, c, -100, w),
                attrs,
                reduction,
            ),
        ]

    def gradient(g: Any, x: Any, t: Any, *_: Any) -> Any:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(fn.cross_entropy(x, t), x, g)[0]

    # m and s are ours. The whole backward is compared; torch's side uses torch's saved values.
    cases.append(
        Case(
            "tallystick.cross_entropy_backward",
            lambda r: [np.float32(0.7).reshape(()), *labelled(r)],
            gradient,
            {"ignore_index": -100, "reduction": "mean"},
        )
    )
    return cases


def _scatter() -> list[Case]:
    def gradients(r: Rng) -> Inputs:
        return [normal(r, 1024, 96), np.minimum(r.zipf(1.3, 1024) - 1, 299).astype(np.int64)]

    return [
        Case(
            "aten.embedding_dense_backward",
            gradients,
            lambda g, i: ATEN.embedding_dense_backward(g, i, 300, -1, False),
            {"num_weights": 300, "padding_idx": -1, "scale_grad_by_freq": False},
        ),
        Case(
            "aten.index_add",
            lambda r: [normal(r, 300, 96), *gradients(r)[::-1]],
            lambda x, i, s: torch.index_add(x, 0, i, s),
            {"dim": 0},
        ),
    ]


STEP, BETA1, BETA2 = 5, 0.9, 0.95


def _optimizers() -> list[Case]:
    def state(r: Rng) -> Inputs:
        return [
            normal(r, 50_000, scale=0.02),
            normal(r, 50_000, scale=0.01),
            normal(r, 50_000, scale=0.005),
            np.square(normal(r, 50_000, scale=0.01)),
        ]

    def adam_state(r: Rng) -> Inputs:
        return [*state(r), np.array(3e-4), np.array(BETA1**STEP), np.array(BETA2**STEP)]

    def adam(step: Callable[..., None], **extra: Any) -> Callable[..., Any]:
        def run(p: Any, g: Any, m: Any, v: Any, lr: Any, *_: Any) -> Any:
            own = [x.clone() for x in (p, m, v)]
            steps = [torch.tensor(float(STEP - 1))]
            step(
                [own[0]],
                [g],
                [own[1]],
                [own[2]],
                [],
                steps,
                foreach=False,
                capturable=False,
                differentiable=False,
                fused=False,
                grad_scale=None,
                found_inf=None,
                has_complex=False,
                amsgrad=False,
                beta1=BETA1,
                beta2=BETA2,
                lr=float(lr),
                eps=1e-8,
                weight_decay=0.1,
                maximize=False,
                **extra,
            )
            return own

        return run

    def sgd(nesterov: bool) -> Callable[..., Any]:
        def run(p: Any, g: Any, buf: Any, lr: Any) -> Any:
            own = [p.clone(), buf.clone()]
            torch_sgd(
                [own[0]],
                [g],
                [own[1]],
                weight_decay=0.01,
                momentum=0.9,
                lr=float(lr),
                dampening=0.0,
                nesterov=nesterov,
                maximize=False,
                foreach=False,
                fused=False,
            )
            return own

        return run

    attrs = {"beta1": BETA1, "beta2": BETA2, "eps": 1e-8, "weight_decay": 0.1}
    names = ("p", "m", "v")
    cases = [
        Case("tallystick.adamw_step", adam_state, adam(torch_adamw), attrs, "", names),
        Case("tallystick.adam_step", adam_state, adam(torch_adam), attrs, "", names),
        Case(
            "tallystick.clip_coef",
            lambda r: [np.float32(x).reshape(()) for x in np.abs(r.standard_normal(148))],
            lambda *s: (lambda n: (torch.clamp(1 / (n + 1e-6), max=1.0), n))(
                torch.sqrt(torch.stack(s).sum())
            ),
            {"max_norm": 1.0},
            "",
            ("coefficient", "norm"),
            3 * SCALAR_DRAWS,
        ),
    ]
    for nesterov in (False, True):
        cases.append(
            Case(
                "tallystick.sgd_step",
                lambda r: [*state(r)[:3], np.array(0.1)],
                sgd(nesterov),
                {"momentum": 0.9, "dampening": 0.0, "weight_decay": 0.01, "nesterov": nesterov},
                "nesterov" if nesterov else "momentum",
                ("p", "buf"),
            )
        )
    return cases


def composite_cases() -> list[Case]:
    """Normalisation, losses, scatter, optimizers."""
    return [*_normalisation(), *_losses(), *_scatter(), *_optimizers()]

"""Batch normalisation and max pooling for benchmarks/accuracy.py; see accuracy_cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from accuracy_cases import ATEN, Case, Inputs, Rng, many, normal

SHAPE = (16, 24, 14, 14)
WINDOW = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)}


def _affine(r: Rng) -> Inputs:
    """x off centre, weight, bias, running mean and variance."""
    channels = SHAPE[1]
    return [
        normal(r, *SHAPE) + np.float32(0.3),
        1 + normal(r, channels, scale=0.1),
        normal(r, channels),
        normal(r, channels),
        np.abs(normal(r, channels)) + np.float32(0.1),
    ]


def _training(*operands: Any) -> Any:
    return ATEN._native_batch_norm_legit_functional(*operands, True, 0.1, 1e-5)


def _by_running(*operands: Any) -> Any:
    return ATEN._native_batch_norm_legit_no_training(*operands, 0.1, 1e-5)[0]


def _back(train: bool) -> Case:
    def make(r: Rng) -> Inputs:
        x, w, b, mean, var = _affine(r)
        statistics = [mean, var]
        if train:
            found = _training(*(torch.from_numpy(a) for a in (x, w, b, mean, var)))
            statistics = [found[1].numpy(), found[2].numpy()]
        return [normal(r, *SHAPE), x, w, *statistics]

    def backward(g: Any, x: Any, w: Any, mean: Any, spread: Any) -> Any:
        pairs = (None, None, mean, spread) if train else (mean, spread, None, None)
        return ATEN.native_batch_norm_backward(g, x, w, *pairs, train, 1e-5, [True] * 3)

    return Case(
        "aten.native_batch_norm_backward",
        make,
        backward,
        {"train": train, "eps": 1e-5, "output_mask": (True, True, True)},
        "train" if train else "frozen",
        ("input", "weight", "bias"),
    )


def _pool_back(r: Rng) -> Inputs:
    x = normal(r, *SHAPE)
    pair = ATEN.max_pool2d_with_indices(torch.from_numpy(x), *WINDOW.values())
    return [normal(r, *pair[0].shape), x, pair[1].numpy()]


def image_cases() -> list[Case]:
    """Batch normalisation in training, by running statistics, its gradients; pooling's gradient."""
    return [
        Case(
            "aten._native_batch_norm_legit_functional",
            _affine,
            _training,
            {"momentum": 0.1, "eps": 1e-5},
            "",
            ("y", "mean", "rstd", "running_mean", "running_var"),
        ),
        Case("aten._native_batch_norm_legit_no_training", _affine, _by_running, {"eps": 1e-5}),
        _back(True),
        _back(False),
        Case(
            "aten.max_pool2d_with_indices",
            many(1, *SHAPE),
            lambda x: ATEN.max_pool2d_with_indices(x, *WINDOW.values())[0],
            {**WINDOW, "ceil_mode": False},
        ),
        Case(
            "aten.max_pool2d_with_indices_backward",
            _pool_back,
            lambda g, x, i: ATEN.max_pool2d_with_indices_backward(g, x, *WINDOW.values(), False, i),
            {**WINDOW, "ceil_mode": False},
        ),
    ]

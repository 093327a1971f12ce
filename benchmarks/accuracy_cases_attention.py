"""Attention for benchmarks/accuracy.py, in a small language model's shape; see accuracy_cases."""

from __future__ import annotations

import math
from typing import Any

import torch

from accuracy_cases import Case, Inputs, Rng, normal

HEADS, GROUPS, PLACES, DEPTH = 9, 3, 256, 64
SEEN: dict[str, Any] = {"causal": True, "first": 0, "window": 0}


def _shared(x: Any) -> Any:
    """A group's keys or values for each of its heads."""
    return x.repeat_interleave(HEADS // GROUPS, 1)


def _later(x: Any) -> Any:
    return torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)


def _operands(r: Rng) -> Inputs:
    return [normal(r, 1, n, PLACES, DEPTH) for n in (HEADS, GROUPS)]


def _weights(s: Any) -> Any:
    return torch.softmax(s.masked_fill(_later(s), -math.inf), -1)


def _weighted(r: Rng) -> Inputs:
    p = _weights(torch.from_numpy(normal(r, 1, HEADS, PLACES, PLACES, scale=2.0))).numpy()
    return [p, normal(r, 1, GROUPS, PLACES, DEPTH)]


def attention_cases() -> list[Case]:
    """Scores, weights, values."""
    scores = {**SEEN, "scale": 0.125, "softcap": 0.0}
    return [
        Case(
            "tallystick.attention_scores",
            _operands,
            lambda q, k: torch.tril((q @ _shared(k).mT) * 0.125),
            scores,
        ),
        Case(
            "tallystick.attention_scores",
            _operands,
            lambda q, k: torch.tril(torch.tanh((q @ _shared(k).mT) * 0.125 / 30) * 30),
            {**scores, "softcap": 30.0},
            "capped",
        ),
        Case(
            "tallystick.attention_weights",
            lambda r: [normal(r, 1, HEADS, PLACES, PLACES, scale=2.0)],
            _weights,
            SEEN,
        ),
        Case("tallystick.attention_values", _weighted, lambda p, v: p @ _shared(v), SEEN),
    ]

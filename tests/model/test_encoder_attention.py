"""ANSWERS 11.5: an absent key is absent. The attention of encoders in a bucket, against the
reference over the present keys alone: infinities, NaN, both zeros, numbers that grow and vanish."""

from __future__ import annotations

from functools import cache, reduce
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from reference.attention import ATTENTION
from reference.floats import maximum
from reference.sums import total

from tallystick.answers.encoder_modules import attend, pooled_rows
from tallystick.numerics.contracts import resolve_contract
from tallystick.program.capture.api import capture_forward
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

HEADS, WIDTH = 2, 5
SEEN = {"causal": False, "first": 0, "window": 0}
CONTRACTS = tuple(resolve_contract(name) for name in ("ordered/1", "rounded/1"))
ODD = (np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-45, -1e-45, 3e38, -3e38, 1e-30, -1e-30)


def masked(module: Any, batch: Any) -> torch.Tensor:
    present = torch.arange(batch["k"].shape[2], device=batch["k"].device) < batch["length"]
    mask = present[None, None, None]
    out, _ = attend(module, batch["q"], batch["k"], batch["v"], mask, scaling=0.5)
    return out.transpose(1, 2)


@cache
def program(keys: int, contract: str) -> Executor:
    shape = ((1, HEADS, keys, WIDTH), "f32")
    batch = {"q": shape, "k": shape, "v": shape, "length": ((1,), "i64")}
    return Executor(capture_forward(torch.nn.Module(), batch, masked, contract))


def by_reference(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Attention over these keys alone, and +0 added."""
    scale = {"scale": 0.5, "softcap": 0.0}
    (s,) = ATTENTION["tallystick.attention_scores"]({**SEEN, **scale}, [q, k])
    (p,) = ATTENTION["tallystick.attention_weights"](SEEN, [s])
    (out,) = ATTENTION["tallystick.attention_values"](SEEN, [p, v])
    return out + np.float32(0)


def drawn(rng: np.random.Generator, count: int) -> np.ndarray:
    x = rng.standard_normal((1, HEADS, count, WIDTH)) * np.exp2(rng.integers(-40, 6))
    where = rng.random(x.shape) < rng.choice((0, 0.02, 0.3))
    return np.where(where, rng.choice(ODD, x.shape), x).astype(np.float32)


def bits(x: np.ndarray) -> np.ndarray:
    """The bits, NaN as the canonical one."""
    return np.where(np.isnan(x), np.float32(np.nan), x).view(np.uint32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("keys", (7, 33, 150, 300))
def test_absent_keys_are_no_terms(keys: int, contract: str) -> None:
    rng, executor = np.random.default_rng(keys), program(keys, contract)
    counts = [1, 2, keys - 1, keys, *rng.integers(1, min(keys, 40), 12)]
    for count in counts:
        q, k, v = (drawn(rng, keys) for _ in range(3))
        batch = {"q": q, "k": k, "v": v, "length": np.array([count], np.int64)}
        found = executor.execute({}, StepInputs(batch)).outputs["logits"]
        queries = min(count, 3)
        wanted = by_reference(q[:, :, :queries], k[:, :, :count], v[:, :, :count])
        assert (bits(found[:, :, :queries]) == bits(wanted)).all(), count


@cache
def pooling(places: int, mode: str, contract: str) -> Executor:
    def forward(_: Any, batch: Any) -> torch.Tensor:
        present = torch.arange(places, device=batch["x"].device) < batch["length"]
        return pooled_rows(batch["x"], present, batch["length"], mode)

    batch = {"x": ((places, WIDTH), "f32"), "length": ((1,), "i64")}
    return Executor(capture_forward(torch.nn.Module(), batch, forward, contract))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("mode", ("mean", "max", "cls"))
@pytest.mark.parametrize("places", (7, 33, 300))
def test_pooling_reads_present_places_alone(places: int, mode: str) -> None:
    rng = np.random.default_rng(places)
    for count in [1, 2, places - 1, places, *rng.integers(1, places, 12)]:
        x = drawn(rng, places)[0, 0]
        batch = {"x": x, "length": np.array([count], np.int64)}
        found = pooling(places, mode, CONTRACTS[0]).execute({}, StepInputs(batch))
        rows = x[:count].T
        sums = np.array([total(row) for row in rows], np.float32) + np.float32(0)
        wanted = {
            "mean": sums / np.float32(count),
            "max": np.array([reduce(maximum, row) for row in rows], np.float32),
            "cls": x[0],
        }[mode]
        assert (bits(found.outputs["logits"]) == bits(wanted)).all(), count

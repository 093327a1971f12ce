"""R, log and rev by torch's kernels have the bits of the core's pass (NUMERICS 14.9)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("torch", reason="the published form runs on torch")

import torch

from tallystick import _core
from tallystick.contracts.replay.stock import table

BITS = (20, 21, 24, 26, 28, 31, 32)
THRESHOLDS = (0, 1, 1 << 15, 1 << 19, (1 << 20) - 1, 1 << 40)


def hard_values() -> np.ndarray:
    """f64: ties, their neighbours, ends of ranges, subnormals of both formats, decimal powers."""
    rng = np.random.default_rng(7)
    exact = rng.standard_normal(3000).astype(np.float32)
    exact = np.concatenate([exact, np.ldexp(exact, rng.integers(-148, 126, 3000)).astype("f4")])
    ulp = np.spacing(np.abs(exact)).astype(np.float64)
    wide = exact.astype(np.float64)
    near = [wide + ulp * k for k in (0.0, 0.25, 0.49999, 0.5, 0.50001, 0.75, 4.0, 8.0, 2048.0)]
    near += [np.nextafter(y, np.inf) for y in near] + [np.nextafter(y, -np.inf) for y in near]
    tens = np.array([float(f"1e{k}") for k in range(-323, 309)])
    powers = [2.0**k for k in (-1074, -150, -149, -126, 128)]
    ends = np.array([0.0, -0.0, np.inf, np.nan, 3.4028235e38, 3.40282357e38, 1.7e308, *powers])
    every = [*near, tens, np.nextafter(tens, 0), np.nextafter(tens, np.inf), ends]
    with np.errstate(all="ignore"):
        drawn = rng.integers(0, 1 << 63, 20000, dtype=np.uint64).view(np.float64)
    found = np.concatenate([*every, drawn])
    return np.concatenate([found, -found])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("decimal", [False, True])
def test_log_and_rev_have_the_bits_of_the_core(bits: int, decimal: bool) -> None:
    x = hard_values()
    tensor = torch.from_numpy(x)
    out, packed = np.empty(x.size, np.float32), np.empty(-(-x.size // 5), np.uint8)
    for threshold, plus in itertools.product(THRESHOLDS, (False, True)):
        _core.published_log(x, threshold, decimal, bits, plus, out, packed)
        value, entries = table.log(tensor, threshold, decimal, bits, plus)
        assert value.numpy().tobytes() == out.tobytes()
        assert entries.numpy().tobytes() == packed.tobytes()
    given = np.random.default_rng(bits).integers(0, 256, packed.size, dtype=np.uint8)
    for plus in (False, True):
        changed = _core.published_follow(x, given, bits, plus, out)
        value, number = table.follow(tensor, torch.from_numpy(given), bits, plus)
        assert value.numpy().tobytes() == out.tobytes()
        assert number == changed > 1000


@pytest.mark.parametrize("size", [0, 1, 4, 5, 6, 11])
def test_every_length(size: int) -> None:
    x = np.random.default_rng(size).standard_normal(size)
    out, packed = np.empty(size, np.float32), np.empty(-(-size // 5), np.uint8)
    _core.published_log(x, 1 << 15, False, 32, False, out, packed)
    value, entries = table.log(torch.from_numpy(x), 1 << 15, False, 32, False)
    assert (value.numpy().tobytes(), entries.numpy().tobytes()) == (out.tobytes(), packed.tobytes())
    assert table.unpack(entries, size).shape == (size,)


def test_a_shape_is_kept() -> None:
    x = torch.randn(3, 7, 2, dtype=torch.float64)
    value, entries = table.log(x, 1 << 15, False, 28, False)
    followed, changed = table.follow(x, entries, 28, False)
    assert value.shape == followed.shape == x.shape and changed == 0

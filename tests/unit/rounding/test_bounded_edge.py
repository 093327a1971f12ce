"""Elements whose V depends on the last bit of E: the order of its two factors shows (NUMERICS 14.4,
OPENING 7.3)."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from emulated_gpu import emulated_gpu
from reference.logs import C, Element
from reference.rounded import square_sums
from unit.rounding.recorded import Run, program

from tallystick.contracts.replay.entries import Entries
from tallystick.devices.cpu import CPU

TERMS = 7
ONE = {
    "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False,
    "output_padding": (0, 0), "groups": 1,
}  # fmt: skip
# Operator, attributes, and the shapes of the operands a and b (OPENING 7.3) among its inputs.
CALLS: dict[str, tuple[str, dict[str, Any], list[tuple[str, tuple[int, ...]]]]] = {
    "product": ("aten.mm", {}, [("a", (1, TERMS)), ("b", (TERMS, 1))]),
    "convolution": ("aten.convolution", ONE, [("a", (1, TERMS, 1, 1)), ("b", (1, TERMS, 1, 1))]),
    "input gradient": (
        "aten.convolution_backward", {**ONE, "output_mask": (True, False, False)},
        [("a", (1, TERMS, 1, 1)), ("x", (1, 1, 1, 1)), ("b", (TERMS, 1, 1, 1))],
    ),
    "weight gradient": (
        "aten.convolution_backward", {**ONE, "output_mask": (False, True, False)},
        [("a", (1, 1, TERMS, 1)), ("b", (1, 1, TERMS, 1)), ("x", (1, 1, 1, 1))],
    ),
}  # fmt: skip


def bounds(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """E of the terms a·b, and what the other order of its factors would give."""
    left, right = (float(np.sqrt(square_sums(x.reshape(-1, 1))[0])) for x in (a, b))
    factor = float(TERMS) * C
    return (factor * left) * right, (factor * right) * left


def edges(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Factors a and b f32[TERMS] with E, such that the boundary above their sum is as far from it
    as the larger of both orders' bounds, and that R of the boundary is above it."""
    rng = np.random.default_rng(seed)
    while True:
        a, b = np.zeros(TERMS, np.float32), np.full(TERMS, 2.0**-12, np.float32)
        a[0], b[0] = rng.uniform(1, 1.4, 2)
        product = Fraction(float(a[0])) * Fraction(float(b[0]))
        lower = int(np.float32(float(a[0]) * float(b[0])).view(np.uint32)) | 1
        edge = sum(Fraction(float(np.uint32(lower + i).view(np.float32))) for i in (0, 1)) / 2
        a[1] = float((edge - product) * 2**12)
        made = bounds(a, b)
        left = edge - product - Fraction(float(a[1])) * Fraction(2) ** -12 - Fraction(max(made))
        for k in range(2, TERMS):
            a[k] = float(left * 2**12)
            left -= Fraction(float(a[k])) * Fraction(2) ** -12
        if left == 0 and made[0] != made[1] and bounds(a, b) == made:
            yield a, b, made[0]


@pytest.mark.parametrize("device", [CPU, emulated_gpu(8)], ids=["processor", "GPU"])
@pytest.mark.parametrize("name", CALLS)
def test_the_order_of_the_bounds_factors(name: str, device: Any, tmp_path: Path) -> None:
    op, attrs, operands = CALLS[name]
    sizes, found = edges(len(name)), set()
    for number in range(12):
        a, b, bound = next(sizes)
        given = {"a": a, "b": b, "x": np.zeros(1, np.float32)}
        batch = {key: given[key].reshape(shape) for key, shape in operands}
        made = program(32, batch, lambda m, v: m.emit(op, [v[k] for k, _ in operands], **attrs))
        recorded = Run(tmp_path / f"{number}", made, batch)
        up = Entries(np.array([0]), np.array([1], np.uint8))
        path = recorded.forge(tmp_path / f"{number}-up", lambda _, __, up=up: up)
        _, outputs, _ = recorded.follow(path, device=device, count_taken=True)
        terms = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True)]
        element = Element(terms, bound, 32)
        assert int(outputs[0].reshape(-1).view(np.uint32)[0]) == element.value(1)
        found.add(len(element.v))
    assert found == {1, 2}

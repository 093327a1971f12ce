"""The four layers of the paper's Table 4, and their outputs near a rounding boundary.

Two kinds of hardware round an output apart only if both results are next to a boundary of the
grid. One output in many millions is. Each kind goes through the same random inputs and gives those
outputs alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tallystick.contracts.replay.calibration import opposite_pairs, search
from tallystick.contracts.replay.stock.stock import Stock
from tallystick.numerics.contracts import MAX_BITS
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import Attrs, type_of

# The distance from a boundary: 2^-16 of the way from it to a value of the grid (b = 32). Kinds of
# hardware differ by far less, so both give the same elements.
_WINDOW = 1 << 12
_LOW_BITS = (1 << 29) - 1

SHAPES = {
    "convolution": "256 channels, 1×1, on 16×16 images",
    "batch_norm": "(128, 128, 16, 16)",
    "linear": "(768, 768)",
    "layer_norm": "(768, 1)",
}
_SIZES: dict[str, tuple[int, ...]] = {
    "convolution": (16, 256, 16, 16),
    "batch_norm": (16, 128, 16, 16),
    "linear": (512, 768),
    "layer_norm": (512, 768),
}


def elements_of(layer: str) -> int:
    """Elements of one data set's output."""
    return math.prod(_SIZES[layer])


def operands(layer: str, seed: int) -> tuple[str, Attrs, list[np.ndarray | None]]:
    """Operator, attributes and random normal operands of the layer: data set number `seed`."""
    draw = np.random.default_rng([seed, sorted(SHAPES).index(layer)])

    def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
        found: np.ndarray = (draw.standard_normal(shape, np.float32) * np.float32(scale)).astype(
            np.float32
        )
        return found

    x = normal(*_SIZES[layer])
    if layer == "linear":
        return "aten.addmm", {"beta": 1.0, "alpha": 1.0}, [
            normal(768), x, normal(768, 768, scale=768**-0.5)
        ]  # fmt: skip
    if layer == "convolution":
        attrs: Attrs = {
            "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False,
            "output_padding": (0, 0), "groups": 1,
        }  # fmt: skip
        return "aten.convolution", attrs, [x, normal(256, 256, 1, 1, scale=1 / 16), None]
    if layer == "layer_norm":
        attrs = {"normalized_shape": (768,), "eps": 1e-5}
        return "aten.native_layer_norm", attrs, [x, normal(768), normal(768)]
    attrs = {"momentum": 0.1, "eps": 1e-5}
    mean, variance = np.zeros(128, np.float32), np.ones(128, np.float32)
    return "aten._native_batch_norm_legit_functional", attrs, [
        x, normal(128), normal(128), mean, variance
    ]  # fmt: skip


def near_boundaries(x: np.ndarray) -> np.ndarray:
    """i64: flat positions of f64 values next to a boundary of the binary32 grid (normal range)."""
    low = x.reshape(-1).view(np.uint64) & np.uint64(_LOW_BITS)
    # Halfway between two binary32 numbers the 29 bits below them are 1000….
    return np.flatnonzero(low - np.uint64((1 << 28) - _WINDOW) < np.uint64(2 * _WINDOW))


def near(layer: str, seeds: range, stock: Stock) -> dict[str, Any]:
    """Outputs next to a boundary over the data sets `seeds`: positions, values as hexadecimal."""
    positions: list[int] = []
    values: list[str] = []
    elements = 0
    for seed in seeds:
        name, attrs, given = operands(layer, seed)
        spec = lookup(name)
        types = spec.infer(attrs, tuple(_type(x) for x in given))
        outputs = [np.empty(t.shape, np.float32) for t in types]
        x = stock.compute(spec, attrs, given, outputs)[0]
        assert x is not None
        at = near_boundaries(x)
        positions += (at + elements).tolist()
        values += [float(v).hex() for v in x.reshape(-1)[at]]
        elements += x.size
    return {"elements": elements, "positions": positions, "values": values}


def _type(x: np.ndarray | None) -> Any:
    return None if x is None else type_of(x)


def apart(mine: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """f64[k] each: the results of two kinds for the elements that both keep."""
    theirs = dict(zip(other["positions"], other["values"], strict=True))
    both = [
        (float.fromhex(value), float.fromhex(theirs[position]))
        for position, value in zip(mine["positions"], mine["values"], strict=True)
        if position in theirs
    ]
    pairs = np.array(both, np.float64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def threshold(results: Sequence[tuple[np.ndarray, np.ndarray]], decimal: bool) -> tuple[float, int]:
    """Algorithm 4 at b = 32 over the results of pairs of kinds.

    Returns τ in units of 2^-23, and the number of elements that rounded to opposite sides.
    """
    y1, y2 = (np.concatenate([pair[side] for pair in results]) for side in (0, 1))
    distances, scales = opposite_pairs(y1, y2, MAX_BITS, decimal)
    return search(distances, scales, MAX_BITS) * 2.0 ** (23 - 40), len(distances) // 2

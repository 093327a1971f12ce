"""Convolutions against torch's, shape by shape: forward, input gradient, weight gradient.

    python benchmarks/convolutions.py [--isa avx2] [--repeats 7] [--only depthwise]
                                      [--old OTHER_CORE.so]

One thread. Each figure is the least of `--repeats` calls, taken in turns, in processor time of the
calling thread, so that other work on the machine counts little. `--old` names another build of the
native core, which takes its turn too; its bits must be equal. The three ratios are ours / torch.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tallystick import _core


@dataclass(frozen=True)
class Shape:
    """[images, channels, height, width] convolved to `outputs` channels."""

    name: str
    images: int
    channels: int
    outputs: int
    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: int = 1
    padding: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def form(self) -> tuple[Any, ...]:
        """Stride, padding, dilation, groups."""
        return (self.stride,) * 2, self.padding, (1, 1), self.groups

    @property
    def out_size(self) -> tuple[int, ...]:
        """Rows and columns of the output."""
        return tuple(
            (n + 2 * p - k) // self.stride + 1
            for n, p, k in zip(self.size, self.padding, self.kernel, strict=True)
        )


def _depthwise(name: str, channels: int, side: int, kernel: int = 3, stride: int = 1) -> Shape:
    pad = kernel // 2
    return Shape(
        f"depthwise {name}", 8, channels, channels, (side, side), (kernel, kernel), stride,
        (pad, pad), channels,
    )  # fmt: skip


def _dense(name: str, channels: int, outputs: int, side: int, groups: int = 1) -> Shape:
    return Shape(name, 16, channels, outputs, (side, side), (3, 3), groups=groups)


SHAPES = (
    _depthwise("3x3, 32 of 112x112", 32, 112),
    _depthwise("3x3/2, 96 of 112x112", 96, 112, 3, 2),
    _depthwise("3x3, 144 of 56x56", 144, 56),
    _depthwise("5x5/2, 144 of 56x56", 144, 56, 5, 2),
    _depthwise("5x5, 240 of 28x28", 240, 28, 5),
    _depthwise("3x3, 384 of 14x14", 384, 14),
    _depthwise("7x7, 96 of 56x56", 96, 56, 7),
    _depthwise("7x7, 384 of 14x14", 384, 14, 7),
    _depthwise("3x3, 384 of 4x4", 384, 4),
    Shape("depthwise 1x4, 1536 of 1x256", 4, 1536, 1536, (1, 256), (1, 4), 1, (0, 3), 1536),
    _dense("grouped 32, 128 of 56x56", 128, 128, 56, 32),
    _dense("grouped 32, 256 of 28x28", 256, 256, 28, 32),
    _dense("grouped 32, 512 of 14x14", 512, 512, 14, 32),
    _dense("grouped 32, 1024 of 7x7", 1024, 1024, 7, 32),
    _dense("grouped 8, 128 of 8x8", 128, 128, 8, 8),
    _dense("dense 512 of 2x2", 512, 512, 2),
    _dense("dense 512 of 4x4", 512, 512, 4),
    _dense("dense 512 of 7x7", 512, 512, 7),
    Shape("dense 1x1 512 of 4x4", 16, 512, 512, (4, 4), (1, 1), 1, (0, 0)),
    _dense("dense 128 of 16x16", 128, 128, 16),
    _dense("dense 64 of 32x32", 64, 64, 32),
)


def _calls(core: Any, shape: Shape, x: Any, w: Any, g: Any) -> list[tuple[Any, Any]]:
    outs = [np.empty_like(g), np.empty_like(x), np.empty_like(w)]
    return [
        (lambda: core.convolution(x, w, None, outs[0], *shape.form), outs[0]),
        (lambda: core.convolution_input_grad(g, w, outs[1], *shape.form), outs[1]),
        (lambda: core.convolution_weight_grad(g, x, outs[2], *shape.form), outs[2]),
    ]


def _theirs(shape: Shape, x: Any, w: Any, g: Any) -> list[Callable[[], object]]:
    tx, tw, tg = map(torch.from_numpy, (x, w, g))
    stride, padding, dilation, groups = shape.form

    def backward(mask: list[bool]) -> object:
        return torch.ops.aten.convolution_backward(
            tg, tx, tw, None, stride, padding, dilation, False, (0, 0), groups, mask
        )

    return [
        lambda: torch.conv2d(tx, tw, None, stride, padding, dilation, groups),
        lambda: backward([True, False, False]),
        lambda: backward([False, True, False]),
    ]


def _seconds(call: Callable[[], object]) -> float:
    before = time.thread_time()
    call()
    return time.thread_time() - before


def measure(shape: Shape, cores: list[Any], repeats: int) -> list[list[float]]:
    """Least seconds of forward, input gradient and weight gradient: each core's, then torch's."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((shape.images, shape.channels, *shape.size), dtype=np.float32)
    w = rng.standard_normal(
        (shape.outputs, shape.channels // shape.groups, *shape.kernel), dtype=np.float32
    )
    g = rng.standard_normal((shape.images, shape.outputs, *shape.out_size), dtype=np.float32)
    sides = [_calls(core, shape, x, w, g) for core in cores]
    torchs = _theirs(shape, x, w, g)
    least = [[float("inf")] * 3 for _ in range(len(cores) + 1)]
    for _ in range(repeats):
        for form in range(3):
            for side, calls in enumerate(sides):
                least[side][form] = min(least[side][form], _seconds(calls[form][0]))
            least[-1][form] = min(least[-1][form], _seconds(torchs[form]))
    for other in sides[1:]:
        for (_, ours), (_, theirs) in zip(sides[0], other, strict=True):
            if ours.tobytes() != theirs.tobytes():
                raise SystemExit(f"{shape.name}: the two cores' bits differ")
    return least


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_loader(
        "_core", importlib.machinery.ExtensionFileLoader("_core", path)
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", default=str(_core.isa()), choices=list(_core.supported_isas()))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="shapes whose name has this in it")
    parser.add_argument("--old", help="another build of the native core")
    given = parser.parse_args()
    cores = [_core, *([_load(given.old)] if given.old else [])]
    for core in cores:
        core.set_isa(given.isa)
        core.set_threads(1)
    torch.set_num_threads(1)
    old = "old ms" if given.old else ""
    print(f"{'shape':32} {'ours ms':>23} {old:>23} {'torch ms':>23}  ratios")
    for shape in SHAPES:
        if given.only not in shape.name:
            continue
        least = measure(shape, cores, given.repeats)
        columns = [" ".join(f"{1e3 * s:7.2f}" for s in side) for side in least]
        if not given.old:
            columns.insert(1, "")
        ratios = " ".join(f"{a / b:5.2f}" for a, b in zip(least[0], least[-1], strict=True))
        print(f"{shape.name:32} {columns[0]} {columns[1]:>23} {columns[2]}  {ratios}", flush=True)


if __name__ == "__main__":
    main()

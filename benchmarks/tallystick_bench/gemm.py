"""GEMM speed against torch.mm in the same process, calls interleaved, medians.

This module imports torch as the yardstick; the core never computes with it.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.errors import UsageError

# The project's target: the ratio of median times, ours over torch's.
TARGET = 1.15
# A timed sample lasts at least this long, so that small products are not timer noise.
_SAMPLE_SECONDS = 2e-3
# An OpenMP worker spins for a while after a call, on a core the other side then misses.
_SETTLE_SECONDS = 0.02


@dataclass(frozen=True)
class Shape:
    """One product M x K x N; `count` > 0 makes it a batch; a letter t marks a transposed view."""

    m: int
    k: int
    n: int
    layout: str = "nn"
    count: int = 0

    @property
    def name(self) -> str:
        """`512x768x768`, `96x64x64x64`, with `-tn` and the like for transposed operands."""
        sides = [self.m, self.k, self.n] if not self.count else [self.count, self.m, self.k, self.n]
        return "x".join(map(str, sides)) + ("" if self.layout == "nn" else f"-{self.layout}")


_SHAPE = re.compile(r"((?:[0-9]{1,6}x){2,3}[0-9]{1,6})(?:-([nt]{2}))?", re.ASCII)


def shape_of(name: str) -> Shape:
    """The shape that is called `name`, as in rows: 512x768x3072, 96x64x64x64-nt. Raises
    UsageError."""
    found = _SHAPE.fullmatch(name)
    sides = [int(side) for side in found[1].split("x")] if found else []
    if found is None or not all(sides):
        raise UsageError(
            f"{name[:40]!r} is no product.",
            "Give rows x terms x columns, such as 512x768x3072, 512x768x768-nt or 96x64x64x64.",
        )
    count, (m, k, n) = sides[0] if len(sides) == 4 else 0, sides[-3:]
    return Shape(m, k, n, found[2] or "nn", count)


# The shapes of the target.
GATED = (
    Shape(256, 256, 256),
    Shape(512, 768, 768),
    Shape(512, 768, 3072),
    Shape(1024, 1024, 1024),
    Shape(2048, 2048, 2048),
)
# The products of a GPT-2 124M training step on 512 tokens.
GPT2 = (
    Shape(512, 768, 2304),
    Shape(512, 3072, 768),
    Shape(512, 768, 768, "nt"),
    Shape(512, 3072, 768, "nt"),
    Shape(768, 512, 3072, "tn"),
    Shape(64, 64, 64, "nt", count=96),
    Shape(64, 64, 64, "nn", count=96),
    Shape(64, 64, 64, "tn", count=96),
)
# The language-model head: seconds per call, so only on request.
HEAD = (
    Shape(512, 768, 50257, "nt"),
    Shape(50257, 512, 768, "tn"),
    Shape(512, 50257, 768),
)


def _operand(rng: np.random.Generator, shape: tuple[int, ...], letter: str) -> np.ndarray:
    if letter == "n":
        return rng.standard_normal(shape, dtype=np.float32)
    stored: np.ndarray = rng.standard_normal((*shape[:-2], shape[-1], shape[-2]), dtype=np.float32)
    transposed: np.ndarray = stored.swapaxes(-1, -2)
    return transposed


def _seconds(call: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def measure_products(shape: Shape, repeats: int) -> tuple[float, float]:
    """Median seconds of (ours, torch's)."""
    import torch

    rng = np.random.default_rng(0)
    batch = (shape.count,) if shape.count else ()
    a = _operand(rng, (*batch, shape.m, shape.k), shape.layout[0])
    b = _operand(rng, (*batch, shape.k, shape.n), shape.layout[1])
    out = np.empty((*batch, shape.m, shape.n), np.float32)
    ta, tb, tout = torch.from_numpy(a), torch.from_numpy(b), torch.empty(out.shape)
    product = _core.bmm if shape.count else _core.mm
    reference = torch.bmm if shape.count else torch.mm

    def ours() -> None:
        product(a, b, out)

    def theirs() -> None:
        reference(ta, tb, out=tout)

    calls: tuple[Callable[[], None], ...] = (ours, theirs)
    for call in calls:
        call()
    times = [max(1, int(_SAMPLE_SECONDS / max(_seconds(call, 1), 1e-7))) for call in calls]
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for call, n, sample in zip(calls, times, samples, strict=True):
            time.sleep(_SETTLE_SECONDS)
            call()  # wakes the threads, so that the time is that of the product alone
            sample.append(_seconds(call, n))
    return statistics.median(samples[0]), statistics.median(samples[1])


def rows(
    threads: int | None = None,
    repeats: int = 15,
    shapes: tuple[Shape | str, ...] = (),
    isas: tuple[str, ...] | None = None,
    device: str | None = None,
) -> list[dict[str, Any]]:
    """Measures every shape (or its name) and returns one row for each instruction set and shape.

    With `device`, the name of a GPU: device_gemm's rows, and its shapes by default.

    `value` is the ratio of median times, ours over torch's float32, both on `threads` threads;
    `seconds` and `anchor_seconds` are the medians. By default the instruction set in use and,
    where that is wider, AVX2. Thread counts and instruction set are restored afterwards.
    """
    import torch

    given = tuple(shape_of(shape) if isinstance(shape, str) else shape for shape in shapes)
    if device is not None:
        from tallystick_bench import device_gemm
        from tallystick_bench.device_time import device_of

        there = device_of(device)
        return device_gemm.rows(there, given) if given else device_gemm.rows(there)
    threads = _core.threads() if threads is None else threads
    default = str(_core.isa())
    chosen = isas or tuple(
        isa for isa in (default, "avx2") if isa == default or isa in _core.supported_isas()
    )
    before = (_core.threads(), torch.get_num_threads())
    found: list[dict[str, Any]] = []
    try:
        _core.set_threads(threads)
        torch.set_num_threads(threads)
        for isa in dict.fromkeys(chosen):
            _core.set_isa(isa)
            for shape in given or GATED + GPT2:
                ours, theirs = measure_products(shape, repeats)
                suffix = "" if isa == default else f"/{isa}"
                found.append(
                    {
                        "name": f"gemm/{shape.name}{suffix}/time_ratio",
                        "value": ours / theirs,
                        "unit": "ratio",
                        "target": TARGET if shape in GATED else None,
                        "anchor": "torch.bmm" if shape.count else "torch.mm",
                        "isa": isa,
                        "threads": threads,
                        "seconds": ours,
                        "anchor_seconds": theirs,
                        "gflops": 2e-9 * shape.m * shape.k * shape.n * max(shape.count, 1) / ours,
                    }
                )
    finally:
        _core.set_isa(default)
        _core.set_threads(before[0])
        torch.set_num_threads(before[1])
    return found

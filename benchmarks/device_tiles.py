"""Times every tile of the product kernels on a GPU, to choose `rate` in products/cuda/tiles.py.

    python benchmarks/device_tiles.py cuda

A tile cannot change a bit (NUMERICS 1.8), so a table of times decides between them. Each product is
recorded several times and replayed; the time ends when a small result has been read.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterable
from typing import Any

from tallystick.devices.cuda.device import Cuda
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.products.cuda.tiles import FORCED, TILES, choose, chunks
from tallystick.program.layout import new_tensor
from tallystick_bench.device_gemm import operand

# rows, columns, terms, batch; the letters say which axis of A and B is contiguous: n as in A·B, t
# transposed. Squares, the products of GPT-2 124M at 4,096 tokens, and of its attention.
SHAPES: tuple[tuple[int, int, int, int, str], ...] = (
    *((side, side, side, 1, "nn") for side in (1024, 2048, 4096, 8192)),
    (4096, 4096, 4096, 1, "nt"),
    (4096, 4096, 4096, 1, "tn"),
    (4096, 2304, 768, 1, "nt"),
    (4096, 768, 768, 1, "nt"),
    (4096, 768, 3072, 1, "nt"),
    (768, 768, 4096, 1, "tn"),
    (2304, 768, 4096, 1, "tn"),
    (4096, 50304, 768, 1, "nt"),
    (1024, 1024, 64, 48, "nt"),
    (1024, 64, 1024, 48, "nn"),
    (64, 64, 50304, 1, "tn"),
)


def seconds(device: Cuda, work: Any, times: int, runs: int) -> float:
    """The median time of one `work`, of `times` that are recorded together, in `runs` runs."""
    flag = new_tensor(device, TensorType("f32", (1,)))
    work()  # loads the kernel

    def several() -> None:
        for _ in range(times):
            work()

    recorded = device.driver.record(several)
    taken = []
    for _ in range(runs):
        device.host(flag)
        begin = time.perf_counter()
        recorded.replay()
        device.host(flag)
        taken.append((time.perf_counter() - begin) / times)
    return statistics.median(taken)


def time_tiles(
    device: Cuda,
    shapes: Iterable[tuple[int, int, int, int, str]] = SHAPES,
    most_times: int = 50,
    runs: int = 5,
) -> list[dict[str, Any]]:
    """One row for each shape, tile and way: seconds, TFLOP/s, and whether it is what is chosen."""
    kernel = device.kernels(find_contract("ordered/1"))["aten.bmm"]
    rows = []
    for m, n, k, batch, layout in shapes:
        a = operand(device, m, k, batch, layout[0] == "t")
        b = operand(device, k, n, batch, layout[1] == "t")
        out = new_tensor(device, TensorType("f32", (batch, m, n)))
        chosen = choose(m, n, k, batch)
        work = 2 * m * n * k * batch
        for name, tile in TILES.items():
            for split in (False, True) if chunks(k) > 1 else (False,):
                FORCED.tile, FORCED.split = name, split
                try:
                    times = max(1, min(most_times, int(2e11 / work)))
                    taken = seconds(device, lambda: kernel.run({}, [a, b], [out]), times, runs)  # noqa: B023
                finally:
                    FORCED.tile, FORCED.split = None, None
                rows.append(
                    {
                        "shape": [m, n, k, batch],
                        "layout": layout,
                        "tile": name,
                        "split": split,
                        "seconds": taken,
                        "tflops": work / taken / 1e12,
                        "chosen": chosen.tile is tile and chosen.split == split,
                    }
                )
    return rows


if __name__ == "__main__":
    from tallystick.devices.cuda.nvidia import NvidiaDriver, ordinal_of

    ordinal = ordinal_of(sys.argv[1] if len(sys.argv) > 1 else "cuda")
    for row in time_tiles(Cuda(NvidiaDriver(ordinal))):
        print(json.dumps(row))

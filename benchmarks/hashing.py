"""The speed of tensor digests: tensor_leaves_root over 512 MiB, best of three (ADR 0004).

python benchmarks/hashing.py [--json] [--mib 512]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tallystick import _core


def best(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--mib", type=int, default=512)
    options = parser.parse_args(arguments)
    core: Any = _core
    data = np.random.default_rng(0).integers(0, 256, options.mib << 20, dtype=np.uint8)
    rows = []
    for implementation in core.sha256_implementations():
        core.set_sha256_implementation(implementation)
        for threads in (1, 2):
            core.set_threads(threads)
            for leaf in (1024, 2048, 4096):
                seconds = best(partial(core.tensor_leaves_root, data, leaf), 3)
                rows.append((f"{implementation}/threads{threads}/leaf{leaf}", seconds))
    rows.append(("hashlib/one_stream", best(lambda: hashlib.sha256(data).digest(), 3)))
    if options.json:
        found = [
            {
                "name": f"hashing/{name}/bytes_per_second",
                "value": data.nbytes / seconds,
                "unit": "B/s",
                "target": None,
            }
            for name, seconds in rows
        ]
        print(json.dumps({"bench": "hashing", "machine": platform.machine(), "rows": found}))
        return 0
    for name, seconds in rows:
        print(f"{name:32} {data.nbytes / seconds / 1e9:6.2f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One part of the check in a process of its own, so that a fault of the GPU ends only this part.

Run: python one.py PART --device cuda --out FILE [--work FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
for _folder in ("src", "benchmarks", "tests/vectors", "tests/gpu", "tests"):
    sys.path.insert(0, str(ROOT / _folder))

from check import bits, exact, faults, large, replay, speed  # noqa: E402
from check.where import Where  # noqa: E402

from tallystick.devices.cuda.device import Cuda  # noqa: E402


def _emulated(seed: int = 5) -> Cuda:
    from emulated_gpu import emulated_gpu

    return emulated_gpu(seed)


def open_device(name: str) -> Cuda:
    """The GPU called `name`; "emulated" is the one of the tests."""
    if name == "emulated":
        return _emulated()
    from tallystick.devices.cuda.nvidia import NvidiaDriver, ordinal_of

    return Cuda(NvidiaDriver(ordinal_of(name)))


def _compile(name: str, architecture: str) -> int:
    from tallystick.devices.cuda.source import compiled

    return len(compiled(name, architecture))


def kernels(where: Where) -> dict[str, Any]:
    """Every kernel source, compiled for this GPU into the cache that the other parts use."""
    from tallystick.devices.cuda.source import source_files

    names = source_files()
    architecture = getattr(where.device.driver, "architecture", None)
    if where.small:
        return {"ok": bool(where.device.driver.kernels()), "sources": len(names)}  # type: ignore[attr-defined]
    # Not forked: this process has opened the GPU.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        sizes = list(pool.map(_compile, names, [architecture] * len(names)))
    driver: Any = where.device.driver
    return {
        "ok": all(sizes), "sources": len(names), "code_bytes": sum(sizes), "gpu": driver.model,
        "architecture": architecture, "memory_bytes": driver.total_bytes,
    }  # fmt: skip


PARTS: dict[str, Callable[[Where], dict[str, Any]]] = {
    "kernels": kernels,
    "vectors": bits.vectors,
    "fingerprints": bits.fingerprints,
    "nasty": bits.nasty,
    "roots": bits.roots,
    "bounded": replay.bounded,
    "large": large.large,
    "faults": faults.faults,
    "products": speed.products,
    "gemm": speed.gemm,
    "exact": exact.exact,
    "step": speed.step,
}


def outcome(part: str, where: Where) -> dict[str, Any]:
    """What the part found; a failure is an outcome too."""
    try:
        found = PARTS[part](where)
        if hasattr(where.device.driver, "check"):
            where.device.driver.check()
        return found
    except Exception:
        return {"ok": False, "error": traceback.format_exc()[-3000:]}


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        try:
            device = open_device(asked.device)
        except Exception as error:
            found: dict[str, Any] = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        else:
            found = outcome(asked.part, Where(device, asked.device == "emulated", Path(work)))
    text = json.dumps(found, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text)
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""Freezing a data set of a given size, beside the disk and SHA-256: speed and peak memory.

    PYTHONPATH=src .venv/bin/python benchmarks/freeze.py --gib 20 --dir SCRATCH

A synthetic data set makes its items as they are asked for: images of 3 x 224 x 224 bytes with a
class (150,536 bytes a record), or rows of 64 float32 with one (264 bytes) as columns of
.safetensors shards. Each measurement runs in a process of its own, so its peak memory is its own;
what it wrote is removed after it.

    write     the same bytes written one after the other, 8 MiB at a time, flushed every 256 MiB
    sha256    the same bytes through hashlib's SHA-256, one thread
    freeze    tallystick.freeze
    verify    the frozen set's records read and hashed again

The peak is the kernel's VmHWM of the process, which counts pages of mapped files too, and not the
page cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

_IMAGE = (3, 224, 224)
_POOL = 64 << 20
_BLOCK = 8 << 20
_FLUSH = 256 << 20


class Images:
    """Items (x, y): windows of a pool of random bytes, each at another place."""

    def __init__(self, nbytes: int) -> None:
        self.size = int(np.prod(_IMAGE))
        self.count = nbytes // (self.size + 8)
        self.pool = np.random.default_rng(0).integers(0, 256, _POOL, dtype=np.uint8)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        start = index * 7919 % (_POOL - self.size)
        return self.pool[start : start + self.size].reshape(_IMAGE), index % 1000


def peak_mib() -> float:
    """The most memory that this process has had, MiB."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def blocks(nbytes: int) -> Any:
    """8 MiB blocks of the pool, `nbytes` in all."""
    pool = np.random.default_rng(0).integers(0, 256, _POOL, dtype=np.uint8)
    for at in range(0, nbytes, _BLOCK):
        start = at // _BLOCK * 7919 % (_POOL - _BLOCK)
        yield pool[start : start + min(_BLOCK, nbytes - at)].data


def write(directory: Path, nbytes: int) -> int:
    """Plain sequential writing, flushed."""
    descriptor = os.open(directory / "plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    since = 0
    for block in blocks(nbytes):
        view = memoryview(block)
        since += view.nbytes
        while view.nbytes:
            view = view[os.write(descriptor, view) :]
        if since >= _FLUSH:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            since = 0
    os.fsync(descriptor)
    os.close(descriptor)
    return nbytes


def sha256(directory: Path, nbytes: int) -> int:
    """The bytes through hashlib."""
    digest = hashlib.sha256()
    for block in blocks(nbytes):
        digest.update(block)
    return nbytes


def freeze(directory: Path, nbytes: int) -> int:
    """tallystick.freeze of the images."""
    import tallystick

    made = tallystick.freeze(Images(nbytes), directory / "frozen")
    return made.nbytes


def shard(directory: Path, nbytes: int) -> int:
    """1 GiB of rows, which `freeze_rows` reads again and again."""
    from tallystick.disk.tensorfile import write_tensors

    rows = (1 << 30) // 264 // 16
    x = np.random.default_rng(0).standard_normal((rows, 64), dtype=np.float32)
    columns: dict[str, Any] = {"x": np.tile(x, (16, 1)), "y": np.arange(16 * rows)}
    write_tensors(directory / "shard.safetensors", columns)
    return 16 * rows * 264


def freeze_rows(directory: Path, nbytes: int) -> int:
    """tallystick.freeze of shards of rows."""
    import tallystick

    paths = [directory / "shard.safetensors"] * max(1, nbytes >> 30)
    made = tallystick.freeze(paths, directory / "frozen")
    return made.nbytes


def verify(directory: Path, nbytes: int) -> int:
    """Every record hashed again, from the disk."""
    import tallystick

    made = tallystick.load_frozen(directory / "frozen")
    descriptor = os.open(made.file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    made.verify()
    return made.nbytes


MEASURED = {f.__name__: f for f in (write, sha256, shard, freeze, freeze_rows, verify)}


def one(name: str, directory: Path, nbytes: int) -> dict[str, Any]:
    """A measurement in a process of its own."""
    command = [sys.executable, __file__, "--only", name, "--dir", str(directory)]
    done = subprocess.run(
        [*command, "--bytes", str(nbytes)], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--rows", action="store_true", help="rows of shards, not images")
    parser.add_argument("--only", choices=MEASURED, help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        began = time.perf_counter()
        done = MEASURED[given.only](given.dir, given.bytes)
        seconds = time.perf_counter() - began
        found = {"bytes": done, "seconds": seconds, "peak_mib": peak_mib()}
        print(json.dumps({**found, "cpu": time.process_time()}))
        return
    directory = given.dir / "freeze-benchmark"
    directory.mkdir(parents=True)
    try:
        nbytes = int(given.gib * 2**30)
        made = ("shard", "freeze_rows") if given.rows else ("freeze",)
        for name in ("write", "sha256", *made, "verify"):
            found = one(name, directory, nbytes)
            size, seconds = found["bytes"], found["seconds"]
            print(
                f"{name:12}{size / 1e9:8.2f} GB {seconds:8.1f} s {size / seconds / 1e6:8.0f} MB/s  "
                f"peak {found['peak_mib']:6.0f} MiB  processor {found['cpu']:.0f} s",
                flush=True,
            )
            (directory / "plain").unlink(missing_ok=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()

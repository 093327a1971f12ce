"""Unit costs of one machine alone: hashing, folding, the disk, signatures, the journal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.commit.signing import PrivateKey
from tallystick.commit.state import node_digest
from tallystick.commit.tensor import tensor_digest
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.disk.tensorfile import read_tensors, write_tensors
from tallystick.numerics.contracts import parse_contract, resolve_contract
from tallystick.numerics.operators.reduction import FOLD
from tallystick.run.distributed.messages import checksum
from tallystick.run.store.journal import Journal

Found = dict[str, Any]
# Operands of the measured fold: the workers' partial sums of one share.
FOLDED = 8


def least(call: Callable[[], object], repeats: int) -> float:
    """The least seconds of a call, after one that is not counted: other work on the machine only
    adds to it."""
    call()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)


def digests(mib: int, repeats: int, threads: int) -> Found:
    """Bytes a second of a tensor's digest (COMMITMENTS 3.5), on 1 to `threads` threads."""
    array = np.random.default_rng(0).standard_normal(mib << 18, dtype=np.float32)
    found = {}
    for count in range(1, threads + 1):
        with ExecutionContext(count).entered():
            seconds = least(partial(tensor_digest, array), repeats)
        found[str(count)] = array.nbytes / seconds
    return {"digest_bytes_s": found, "sha256": _core.sha256_implementation()}


def checksums(mib: int, repeats: int, threads: int) -> Found:
    """Bytes a second of a message's checksum (ADR 20), in 1 to `threads` threads at once."""
    parts = np.random.default_rng(0).integers(0, 256, (threads, mib << 20), dtype=np.uint8)
    found = {}
    for count in range(1, threads + 1):
        with ThreadPoolExecutor(count) as pool:
            seconds = least(lambda: list(pool.map(checksum, parts[:count])), repeats)  # noqa: B023
        found[str(count)] = count * parts.shape[1] / seconds
    return {"checksum_bytes_s": found}


def folds(mib: int, repeats: int, threads: int) -> Found:
    """Bytes of operands a second of a fold of 8 partial sums of float32 (NUMERICS 10.12)."""
    elements = (mib << 18) // FOLDED
    generator = np.random.default_rng(1)
    parts: list[Any] = [
        generator.standard_normal(elements, dtype=np.float32) for _ in range(FOLDED)
    ]
    out = np.empty_like(parts[0])
    with ExecutionContext(threads).entered():
        run = CPU.kernels(parse_contract(resolve_contract("ordered/1")))[FOLD].run
        seconds = least(lambda: run({"mean": False}, parts, [out]), repeats)
    return {"fold_bytes_s": FOLDED * out.nbytes / seconds, "fold_threads": threads}


def disk(mib: int, repeats: int, directory: Path) -> Found:
    """Bytes a second of writing a checkpoint durably (fsync counts), and of reading it again after
    the system was asked to drop it from its page cache."""
    array = np.random.default_rng(2).standard_normal(mib << 18, dtype=np.float32)
    path = directory / "checkpoint.safetensors"
    written = least(lambda: write_tensors(path, {"slot": array}), repeats)
    times = []
    for _ in range(repeats):
        _drop_cache(path)
        began = time.perf_counter()
        read_tensors(path, "checkpoint", copy=True)
        times.append(time.perf_counter() - began)
    path.unlink()
    size = array.nbytes
    return {"write_bytes_s": size / written, "read_bytes_s": size / min(times)}


def _drop_cache(path: Path) -> None:
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def records(count: int, repeats: int, directory: Path) -> Found:
    """Seconds of one signature, one verification, one node digest, and one record of the journal:
    appended, and appended with fsync."""
    key, message = PrivateKey(bytes(32)), bytes(256)
    signature = key.sign(message)
    public, digest = key.public, bytes(32)

    def each(call: Callable[[], object]) -> float:
        def loop() -> None:
            for _ in range(count):
                call()

        return least(loop, repeats) / count

    journal = Journal.open(directory / "journal", digest)
    steps = iter(range(1 << 40))
    found = {
        "sign_s": each(lambda: key.sign(message)),
        "verify_s": each(lambda: public.verifies(signature, message)),
        "node_s": each(lambda: node_digest(digest, 0, 1, "aten.mm", b"", [digest] * 2, [digest])),
        "append_s": each(lambda: journal.loss(next(steps), 0x3F800000)),
    }

    def durable() -> None:
        journal.loss(next(steps), 0x3F800000)
        journal.sync()

    found["journal_s"] = least(durable, 8 * repeats)
    journal.close()
    return found

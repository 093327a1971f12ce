"""The test whether torch's own threads keep subnormals and round to nearest (NUMERICS 1.7)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from tallystick.products.probe import probe_products, refuse_threads

Tensor = torch.Tensor
# The elements of a thread's share: torch gives a pass one thread for each 32,768.
_SHARE = 1 << 15
# x, y and x + y, as bits of binary32: as in products/probe.py, a value for each environment.
_KINDS = (
    (0x3F800000, 0x33000000, 0x3F800000),  # 1 + 2^-25: rounded upward?
    (0x3F800000, 0x33C00000, 0x3F800001),  # 1 + 1.5·2^-24: downward, toward zero?
    (0xBF800000, 0xB3000000, 0xBF800000),  # -1 - 2^-25: downward?
    (0x00012345, 0x00012345, 0x0002468A),  # subnormals
)
_ROUNDINGS = 3  # the first kinds


@lru_cache(maxsize=8)
def _operands(threads: int) -> tuple[Tensor, Tensor, np.ndarray]:
    """x and y, f32, and the bits that x + y must have, u32."""
    count = _SHARE * threads // len(_KINDS)
    x, y, total = (np.tile(np.array(c, np.uint32), count) for c in zip(*_KINDS, strict=True))
    first, second = (torch.from_numpy(v.view(np.float32)) for v in (x, y))
    return first, second, total


def _multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    torch.mm(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))


def check_torch_threads() -> None:
    """Raise EnvironmentRefusedError unless torch computes, in its own passes and in its products,
    on threads with the environment of NUMERICS 1.7. Call it inside of `exact_environment`."""
    threads = torch.get_num_threads()
    if threads == 1:
        return  # the one thread is the calling thread
    x, y, bits = _operands(threads)
    with torch.no_grad():
        total = torch.add(x, y)
        wrong = np.flatnonzero(total.numpy().view(np.uint32) != bits)
        if len(wrong):
            refuse_threads("torch", bool((wrong % len(_KINDS) < _ROUNDINGS).any()))
        probe_products("torch", _multiply, threads)

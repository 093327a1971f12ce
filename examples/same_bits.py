"""Only the same bits, without jobs, runs or signatures.

    python examples/same_bits.py

Plain eager PyTorch code computes under a contract: with any number of threads and on any
instruction set, it gives the same bits. Then a single operator computes on numpy arrays, as the
specification says.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch
from torch import nn

import tallystick


def train(threads: int) -> str:
    """Twenty steps of a small network; a digest of its weights."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False, fused=False)
    x, y = torch.randn(32, 64), torch.arange(32) % 10
    with tallystick.reproducible("ordered/1", seed=1) as contract:
        for _ in range(20):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            contract.next_step()
    digest = hashlib.sha256()
    for weights in model.parameters():
        digest.update(weights.detach().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    one, two = train(threads=1), train(threads=2)
    print(f"weights {one[:16]} with 1 thread, {two[:16]} with 2")
    assert one == two

    # NUMERICS 5: exp is the real value, rounded once. The same 32 bits everywhere.
    x = np.array([0.5, -1.0, 88.0], np.float32)
    y = tallystick.evaluate("aten.exp", x)
    bits = y.view(np.uint32).tolist()
    print("exp    ", [f"{float(value):g} ({own:08x})" for value, own in zip(y, bits, strict=True)])
    assert bits == [0x3FD3094C, 0x3EBC5AB2, 0x7EF882B7]


if __name__ == "__main__":
    main()

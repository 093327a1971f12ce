"""DistributedDataParallel of one process, by gloo, with its sampler."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def run(workers: int) -> tuple[nn.Module, list[float]]:
    """Two epochs."""
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        at = f"file://{Path(folder) / 'meet'}"
        dist.init_process_group("gloo", init_method=at, rank=0, world_size=1)
        try:
            return _train(workers)
        finally:
            dist.destroy_process_group()


def _train(workers: int) -> tuple[nn.Module, list[float]]:
    model = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
    )
    wrapped = nn.parallel.DistributedDataParallel(model)
    records = TensorDataset(torch.randn(32, 8), torch.randint(3, (32,)))
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(records)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
    losses: list[float] = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, labels in DataLoader(records, 8, sampler=sampler, num_workers=workers):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(wrapped(x), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item())
    return model, losses

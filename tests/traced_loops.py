"""A training loop of plain PyTorch in which a test may change one thing, and its trace."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import tallystick
from tallystick.comparing.found import Comparison

RECORDS, BATCH, STEPS = 20, 8, 6


class TracedNet(nn.Module):
    def __init__(self, p: float, act: Callable[[Tensor], Tensor], norm: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)
        self.drop, self.act = nn.Dropout(p), act
        self.norm = nn.LayerNorm(32) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.second(self.drop(self.norm(self.act(self.first(x)))))
        return result


def nothing(step: int, model: nn.Module) -> None:
    return None


@contextmanager
def plainly() -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Loop:
    """A training loop, with everything that a test may change in it."""

    seed: int = 1
    weights: int | None = None  # a seed of its own: as a loaded checkpoint
    lr: float = 0.05
    rates: dict[int, float] = field(default_factory=dict)
    momentum: float = 0.9
    decay: float = 0.0
    optimizer: str = "SGD"
    p: float = 0.1
    training: bool = True
    act: Callable[[Tensor], Tensor] = torch.relu
    norm: bool = False
    batch: int = BATCH
    drop_last: bool = False
    shuffle: int | None = None  # the seed of the loader's own generator
    permute: int | None = None  # the seed of a permutation made by numpy
    shift: float = 0.0
    before: Callable[[int, nn.Module], None] = nothing
    around: Callable[[], Any] = plainly
    steps: int = STEPS
    inside: bool = False  # weights and data are made within the trace
    manual: bool = False  # without an optimizer of torch
    loss: Callable[..., Tensor] = functional.cross_entropy

    def run(self, place: Path, block: Any = None, **asked: Any) -> Path:
        torch.manual_seed(self.seed)
        random.seed(0)
        np.random.seed(0)
        made = None if self.inside else self.parts()
        with block or tallystick.trace(place, **asked), self.around():
            self.train(*(made or self.parts()))
        return place

    def parts(self) -> tuple[TracedNet, Any, Any]:
        if self.weights is not None:
            state = torch.get_rng_state()
            torch.manual_seed(self.weights)
        net = TracedNet(self.p, self.act, self.norm).train(self.training)
        if self.weights is not None:
            torch.set_rng_state(state)
        kind: Any = getattr(torch.optim, self.optimizer)
        options = {"momentum": self.momentum} if self.optimizer == "SGD" else {}
        rule = kind(net.parameters(), lr=self.lr, weight_decay=self.decay, **options)
        fixed = np.random.default_rng(3)
        x = fixed.standard_normal((RECORDS, 16), dtype=np.float32)
        y = fixed.integers(0, 4, RECORDS)
        if self.permute is not None:
            order = np.random.default_rng(self.permute).permutation(RECORDS)
            x, y = x[order], y[order]
        x[5] += self.shift
        data = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        generator = None
        if self.shuffle is not None:
            generator = torch.Generator().manual_seed(self.shuffle)
        loader: Any = DataLoader(
            data,
            self.batch,
            shuffle=self.shuffle is not None,
            generator=generator,
            drop_last=self.drop_last,
        )
        return net, rule, loader

    def train(self, net: TracedNet, rule: Any, loader: Any) -> None:
        step = 0
        while True:
            for x, y in loader:
                if step in self.rates:
                    rule.param_groups[0]["lr"] = self.rates[step]
                self.before(step, net)
                net.zero_grad()
                self.loss(net(x), y).backward()  # type: ignore[no-untyped-call]
                if self.manual:
                    with torch.no_grad():
                        for parameter in net.parameters():
                            assert parameter.grad is not None
                            parameter.sub_(self.lr * parameter.grad)
                else:
                    rule.step()
                step += 1
                if step == self.steps:
                    return


def flip(bit: int, at: int = 3) -> Callable[[int, nn.Module], None]:
    """One bit of one weight, as a fault of the memory would flip it."""

    def before(step: int, model: nn.Module) -> None:
        if step == at:
            weight = model.first.weight.detach().numpy()  # type: ignore[operator, union-attr]
            weight.view(np.uint32)[7, 2] ^= np.uint32(1 << bit)

    return before


BASE = Loop()


def compare(ours: Loop, theirs: Loop, tmp_path: Path, **asked: Any) -> Comparison:
    if ours == BASE and not asked:
        made = copied(BASE.run, "base", tmp_path)
    else:
        made = ours.run(tmp_path / "a", **asked)
    return tallystick.diff(made, theirs.run(tmp_path / "b", **asked))


def copied(run: Callable[[Path], Path], name: str, tmp_path: Path) -> Path:
    """A copy, in `tmp_path / "a"`, of a trace that a session makes once, under a name."""
    kept = tmp_path.parent / f"trace-{name}"
    if not kept.exists():
        made = run(tmp_path / "unfinished")
        made.rename(kept)  # a run that fails leaves nothing for the next test
    return Path(shutil.copytree(kept, tmp_path / "a"))

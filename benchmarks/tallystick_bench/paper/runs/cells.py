"""The cells of `bench paper --part runs`: a model of the paper's size under a contract.

The models are `bench ovt`'s: ResNet-50 for CIFAR-10 at batch 64, GPT-2 124M at 8 sequences of 64
tokens. Quick mode takes its small ones.
"""

from __future__ import annotations

from dataclasses import dataclass

# Cell -> contract. In this order, so that a cut-off measurement has the most different ones.
CONTRACTS: dict[str, str] = {
    "ordered": "ordered/1",
    "rounded": "rounded/1",
    "exact-b22": "exact/1;b=22",
    "replay-bounded": "replay/1",
    "replay-published": "replay/1;form=published",
    "exact-b15": "exact/1;b=15",
    "exact-b8": "exact/1;b=8",
}


@dataclass(frozen=True)
class Size:
    """Steps of a run, steps between its checkpoints, and the first step of its audit."""

    steps: int
    interval: int
    audited_from: int


# ResNet-50's runs are audited over their last checkpoint interval: a step of it takes long.
SIZES: dict[str, Size] = {
    "gpt2-124m": Size(20, 10, 0),
    "resnet50": Size(20, 10, 10),
}
QUICK: dict[str, tuple[str, ...]] = {
    "gpt2-tiny": tuple(CONTRACTS),
    "resnet-tiny": ("ordered", "exact-b22"),
}
QUICK_SIZE = Size(4, 2, 0)


def size_of(model: str) -> Size:
    """The size of a model's runs."""
    return SIZES.get(model, QUICK_SIZE)


def cells(quick: bool) -> list[tuple[str, str]]:
    """(model, cell) of every run, contract by contract."""
    if quick:
        return [(model, name) for model, names in QUICK.items() for name in names]
    return [(model, name) for name in CONTRACTS for model in SIZES]

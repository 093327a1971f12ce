"""The models of `bench paper`: those of `bench ovt`, and those that the papers' other rows name."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick_bench.ovt import models as ovt
from tallystick_bench.ovt.models import Model

# Contract by cell. In this order, so that a cut-off measurement has the most different ones.
CONTRACTS: dict[str, str] = {
    "ordered": "ordered/1",
    "rounded": "rounded/1",
    "exact-b22": "exact/1;b=22",
    "replay-bounded": "replay/1",
    "replay-published": "replay/1;form=published",
    "exact-b15": "exact/1;b=15",
    "exact-b8": "exact/1;b=8",
}
# The contracts of the rows beside zero-knowledge proofs: ours, and the method of OVT.
PROVEN = ("ordered", "rounded", "replay-bounded", "replay-published")


def _logreg(name: str, features: int, records: int, batch: int) -> Model:
    settings = {"features": features, "records": records, "batch_size": batch, "classes": 2}
    pairs = {key: str(value) for key, value in settings.items()}
    return Model(name, "logreg", {**pairs, "validation": "0"})


def _vgg(name: str, size: str, crop: int = 0) -> Model:
    batch = {"batch_size": "16" if size == "11" else "4"}
    return Model(
        name, "vgg11", {"size": size, **batch, "schedule": "constant", "warmup": "0"}, crop
    )


MODELS: dict[str, Model] = ovt.MODELS | {
    model.name: model
    for model in (
        _logreg("logreg-2^18x1024", 1024, 1 << 18, 2014),
        _vgg("vgg11", "11"),
        _logreg("logreg-tiny", 16, 512, 64),
        _vgg("vgg-tiny", "tiny", crop=8),
    )
}


@dataclass(frozen=True)
class Size:
    """Steps of a run, steps between its checkpoints, and the first step of its audit."""

    steps: int
    interval: int
    audited_from: int = 0
    # Plain PyTorch float32 steps take turns with the run's.
    beside: bool = True


# ResNet-50's runs are audited over their last checkpoint interval: a step of it takes long.
SIZES: dict[str, Size] = {
    "gpt2-124m": Size(20, 10),
    "resnet50": Size(20, 10, 10),
    # One pass: the whole batches of 2^18 records.
    "logreg-2^18x1024": Size((1 << 18) // 2014, 65, beside=False),
    "vgg11": Size(20, 10, beside=False),
}
_QUICK_SIZE = Size(4, 2)
_QUICK_ALONE = Size(4, 2, beside=False)

# Part -> whether quick -> the models of its runs and the cells of each.
CELLS: dict[str, dict[bool, dict[str, tuple[str, ...]]]] = {
    "runs": {
        False: {"gpt2-124m": tuple(CONTRACTS), "resnet50": tuple(CONTRACTS)},
        True: {"gpt2-tiny": ("ordered", "replay-published"), "resnet-tiny": ("exact-b22",)},
    },
    "proofs": {
        False: {"logreg-2^18x1024": PROVEN, "vgg11": PROVEN},
        True: {"logreg-tiny": ("ordered", "replay-bounded"), "vgg-tiny": ("ordered",)},
    },
}


def size_of(model: str) -> Size:
    """The size of a model's runs."""
    if model in SIZES:
        return SIZES[model]
    return _QUICK_SIZE if model in ovt.MODELS else _QUICK_ALONE


def cells(part: str, quick: bool) -> list[tuple[str, str]]:
    """(model, cell) of every run of a part, contract by contract."""
    chosen = CELLS[part][quick]
    return [(m, name) for name in CONTRACTS for m, names in chosen.items() if name in names]

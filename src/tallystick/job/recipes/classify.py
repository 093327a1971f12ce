"""Recipes `logreg` and `mlp`: classify vectors; synthetic clusters, CIFAR-10, or a data file."""

from __future__ import annotations

import itertools
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.data.frozen import Frozen
from tallystick.disk.regular import names, open_file, read_file
from tallystick.disk.tensorfile import read_tensors
from tallystick.errors import StorageError, UsageError
from tallystick.job.recipes.base import (
    Built,
    Recipe,
    RecipeData,
    Sources,
    greatest,
    normal,
    record_shape,
    require_fields,
    split,
    uniform,
)
from tallystick.job.recipes.settings import (
    CHOICES,
    SCHEDULES,
    check_name,
    learning_rate,
    make_optimizer,
    setting,
    step_options,
)
from tallystick.numerics.types import TensorType

if TYPE_CHECKING:
    import torch
    from torch import nn

_CIFAR_RECORD = 1 + 3072
_DATA_LIMIT = 8 << 30
SUM_BYTES = 16 << 20


@dataclass(frozen=True)
class LogregSettings:
    """Keys of `--set`."""

    features: int = setting(32, "features of the synthetic data", low=1, high=1 << 20)
    classes: int = setting(10, "classes; 10 for CIFAR-10", low=2, high=1 << 20)
    records: int = setting(2048, "records of the synthetic data", low=16, high=1 << 24)
    batch_size: int = setting(32, "records per step", low=1, high=1 << 20)
    micro_batches: int = setting(0, "number of parts of a batch, computed in turn; 0 = off", low=0)
    lr: float = setting(0.1, "learning rate", low=0)
    momentum: float = setting(0.0, "used by SGD", low=0, high=1)
    weight_decay: float = setting(0.0, "used by SGD", low=0)
    warmup: int = setting(0, "steps of linear warm-up", low=0)
    schedule: str = setting("constant", "constant or cosine (to a tenth of lr)")
    validation: float = setting(0.1, "share of the records held out", low=0, high=0.9)

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise UsageError(
                "logreg: schedule must be constant or cosine.", "Change --set schedule."
            )


@dataclass(frozen=True)
class MlpSettings:
    """Keys of `--set`."""

    features: int = setting(32, "features of the synthetic data", low=1, high=1 << 20)
    classes: int = setting(10, "classes; 10 for CIFAR-10", low=2, high=1 << 20)
    records: int = setting(2048, "records of the synthetic data", low=16, high=1 << 24)
    hidden: int = setting(64, "width of the hidden layers", low=1, high=1 << 20)
    layers: int = setting(2, "hidden layers", low=1, high=100)
    activation: str = setting("relu", "relu, gelu or tanh")
    dropout: float = setting(0.0, "dropout probability after each hidden layer", low=0)
    batch_size: int = setting(32, "records per step", low=1, high=1 << 20)
    micro_batches: int = setting(0, "number of parts of a batch, computed in turn; 0 = off", low=0)
    optimizer: str = setting("adam", CHOICES)
    lr: float = setting(0.003, "learning rate", low=0)
    momentum: float = setting(0.9, "used by SGD and RMSprop", low=0, high=1)
    weight_decay: float = setting(0.0, "weight decay of the optimizer", low=0)
    clip_norm: float = setting(0.0, "largest global gradient norm; 0 = off", low=0)
    clip_value: float = setting(0.0, "largest element of a gradient; 0 = off", low=0)
    ema: float = setting(0.0, "decay of averaged parameters; 0 = no average", low=0, high=1)
    warmup: int = setting(0, "steps of linear warm-up", low=0)
    schedule: str = setting("constant", "constant or cosine (to a tenth of lr)")
    validation: float = setting(0.1, "share of the records held out", low=0, high=0.9)

    def __post_init__(self) -> None:
        for name, known in (
            ("schedule", SCHEDULES),
            ("activation", ("relu", "gelu", "tanh")),
        ):
            if getattr(self, name) not in known:
                raise UsageError(
                    f"mlp: {name} must be one of {', '.join(known)}.", f"Change --set {name}."
                )
        check_name("mlp", self.optimizer)
        if not self.dropout < 1:
            raise UsageError("mlp: dropout must be below 1.", "Change --set dropout.")


def synthetic(features: int, classes: int, records: int, seed: int) -> dict[str, Array]:
    """Gaussian clusters, one per class, from our own Philox generator."""
    centres = normal(seed, 1 << 20, (classes, features), 1.0)
    labels = np.arange(records, dtype=np.int64) % classes
    x = normal(seed, (1 << 20) + 1, (records, features), 1.0)
    rows = max(1, SUM_BYTES // x[0].nbytes)
    for start in range(0, records, rows):  # in place: the data may be a GiB
        part = x[start : start + rows]
        np.add(centres[labels[start : start + rows]], part, out=part)
    return {"x": x, "y": labels}


def cifar10(directory: Path) -> dict[str, Array]:
    """CIFAR-10's binary version: x f32[3072] in [0, 1], y i64. Raises StorageError.

    The function reads every `.bin` file in name order (`data_batch_1.bin` …), but for those whose
    names begin with `test`.
    """
    listed = (n for n in names(directory) if n.endswith(".bin") and not n.startswith("test"))
    found = [directory / name for name in sorted(listed)]
    if not found:
        raise StorageError(
            f"{directory} contains no data_batch_1.bin.",
            "Unpack the binary version of CIFAR-10, and name its directory.",
        )
    parts = []
    for path in found:
        data = read_file(path, _DATA_LIMIT, "CIFAR-10 file")
        if len(data) % _CIFAR_RECORD or not data:
            raise UsageError(
                f"{path} is not a file of the binary version of CIFAR-10.", "Download it again."
            )
        parts.append(np.frombuffer(data, dtype=np.uint8).reshape(-1, _CIFAR_RECORD))
    raw = np.concatenate(parts)
    labels = raw[:, 0].astype(np.int64)
    if labels.max() > 9:
        raise UsageError(
            f"{directory} contains labels above 9, so it is not CIFAR-10.",
            "Name the directory of the binary version of CIFAR-10.",
        )
    return {"x": raw[:, 1:].astype(np.float32) / np.float32(255), "y": labels}


def data_file(path: Path) -> dict[str, Array]:
    """Arrays `x` (floats, one record per row) and `y` (classes) from .npz or .safetensors."""
    if path.suffix == ".safetensors":
        found, _ = read_tensors(path, "data file", strict=False)
    else:
        try:
            file, size = open_file(path, "data file")
            if size > _DATA_LIMIT:
                raise UsageError(
                    f"{path} is too large.", f"Use a file of at most {_DATA_LIMIT} bytes."
                )
            with file, np.load(file, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
        except FileNotFoundError:
            raise StorageError(f"The data file {path} is missing.", "Check the path.") from None
        except (OSError, ValueError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            why = "it is no archive of plain arrays" if "pickle" in str(error) else str(error)
            raise UsageError(
                f"{path} cannot be read as .npz: {why[:120].rstrip('.')}.",
                "Save it with numpy.savez(file, x=..., y=...), or as safetensors.",
            ) from None
    if set(found) != {"x", "y"}:
        raise UsageError(
            f"{path} contains {sorted(found)[:8]}.",
            "Save two arrays in it: x (records) and y (classes).",
        )
    x, y = found["x"], found["y"]
    if x.dtype.kind not in "fiu" or y.dtype.kind not in "iu" or y.ndim != 1 or len(x) != len(y):
        raise UsageError(
            f"{path}: x is {x.dtype}{list(x.shape)} and y is {y.dtype}{list(y.shape)}.",
            "Save x as numbers with one record per row, and y as one integer class per record.",
        )
    if len(y) == 0 or int(y.min()) < 0:
        raise UsageError(
            f"{path} contains no records, or negative classes.",
            "Save at least one record, and count the classes from 0.",
        )
    flat = np.ascontiguousarray(x.reshape(len(x), -1).astype(np.float32))
    if not np.isfinite(flat).all():
        raise UsageError(
            f"{path}: x contains NaN or infinity.", "Remove these values from the data."
        )
    return {"x": flat, "y": y.astype(np.int64)}


def load_data(s: Any, sources: Sources, seed: int) -> RecipeData:
    """Columns `x` f32[features] and `y` i64[]; the last records are held out."""
    if sources.cifar10 is not None:
        columns, origin = cifar10(sources.cifar10), "CIFAR-10"
    elif sources.data is not None:
        columns, origin = data_file(sources.data), f"data file {sources.data.name}"
    else:
        columns = synthetic(s.features, s.classes, s.records, seed)
        origin = "synthetic clusters"
    if int(columns["y"].max()) >= s.classes:
        raise UsageError(
            f"The data has the class {int(columns['y'].max())}, but the model has {s.classes} "
            "classes.",
            f"Add --set classes={int(columns['y'].max()) + 1}.",
        )
    held_out = max(s.batch_size, round(len(columns["y"]) * s.validation))
    if len(columns["y"]) <= held_out:
        raise UsageError(
            f"There are {len(columns['y'])} records, too few for batches of {s.batch_size}.",
            "Use more data or a smaller batch_size.",
        )
    train, validation = split(columns, held_out)
    return RecipeData(train, validation, {"source": origin})


def check_classes(s: Any, frozen: Frozen) -> None:
    """Raise UsageError unless no class of the frozen records is beyond the model's."""
    most = greatest(frozen, "y")
    if most >= s.classes:
        raise UsageError(
            f"The data has the class {most}, but the model has {s.classes} classes.",
            f"Add --set classes={most + 1}.",
        )


def check_frozen(s: Any, frozen: Frozen) -> None:
    """Raise UsageError unless the records are x f32[features] and y i64[]."""
    require_fields(frozen, {"x": ("f32", 1), "y": ("i64", 0)}, "y")
    check_classes(s, frozen)


def init_arrays(types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """nn.Linear's own distribution, U(-1/sqrt(fan_in), 1/sqrt(fan_in)), from our Philox
    generator."""
    weights: dict[str, Array] = {}
    fan_in = {n.rsplit(".", 1)[0]: t.shape[1] for n, t in types.items() if len(t.shape) == 2}
    for index, name in enumerate(sorted(types)):
        bound = 1 / math.sqrt(fan_in[name.rsplit(".", 1)[0]])
        weights[name] = uniform(seed, index, types[name].shape, bound)
    return weights


def _build(
    module: nn.Module, s: Any, optimizer: Any, features: int, steps: int, seed: int
) -> Built:
    from torch.nn import functional as F

    from tallystick.program.capture.api import capture, capture_eval, capture_forward

    def loss(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(module(batch["x"]), batch["y"])

    def forward(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = module(batch["x"])
        return out

    module.train()
    batch = {"x": ((s.batch_size, features), "f32"), "y": ((s.batch_size,), "i64")}
    captured = capture(module, loss, batch, optimizer, **step_options(s))
    types = {n: t for n, t in captured.program.state_types.items() if n.startswith("param.")}
    return Built(
        captured,
        lambda: captured.state_for(init_arrays(types, seed)),
        {"lr": learning_rate(steps, s.lr, s.warmup, s.schedule)},
        capture_eval(module, loss, batch),
        capture_forward(module, {"x": batch["x"]}, forward),
    )


def build_logreg(
    s: LogregSettings, fields: Mapping[str, TensorType], steps: int, seed: int
) -> Built:
    """Softmax regression: one linear layer, cross-entropy, SGD. Needs torch."""
    import torch
    from torch import nn

    from tallystick.program.optimizers import SGD

    (features,) = record_shape(fields, "x", 1)
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(features, s.classes))
    optimizer = SGD(lr="lr", momentum=s.momentum, weight_decay=s.weight_decay)
    return _build(module, s, optimizer, features, steps, seed)


def build_mlp(s: MlpSettings, fields: Mapping[str, TensorType], steps: int, seed: int) -> Built:
    """Hidden layers of one width, cross-entropy, any optimizer. Needs torch."""
    import torch
    from torch import nn

    activations: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}
    (features,) = record_shape(fields, "x", 1)
    widths = [features, *[s.hidden] * s.layers]
    with torch.device("meta"):
        layers: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            layers += [nn.Linear(a, b), activations[s.activation]()]
            if s.dropout:
                layers.append(nn.Dropout(s.dropout))
        module = nn.Sequential(*layers, nn.Linear(s.hidden, s.classes))
    last = f"{len(module) - 1}."
    optimizer = make_optimizer(
        s.optimizer,
        lambda name, shape: len(shape) == 2 and not name.startswith(last),
        momentum=s.momentum,
        weight_decay=s.weight_decay,
    )
    return _build(module, s, optimizer, features, steps, seed)


_SOURCES = ("cifar10", "data")
LOGREG_PRESETS = {
    # The largest size of zero-knowledge proofs of training: 2^18 records to train on, of 1,024
    # features (1 GiB), and one batch beside them that is held out.
    "zk": {
        "records": str((1 << 18) + 1024),
        "features": "1024",
        "classes": "2",
        "batch_size": "1024",
        "validation": "0",
        "lr": "0.01",
    },
}
LOGREG = Recipe(
    "logreg",
    "softmax regression on vectors",
    LogregSettings,
    _SOURCES,
    load_data,
    build_logreg,
    LOGREG_PRESETS,
    check_frozen=check_frozen,
)
MLP = Recipe(
    "mlp",
    "a multilayer perceptron on vectors",
    MlpSettings,
    _SOURCES,
    load_data,
    build_mlp,
    check_frozen=check_frozen,
)

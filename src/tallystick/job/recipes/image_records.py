"""What recipes of image classifiers share: their records, their checks, and their capture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tallystick.commit.tensor import Array
from tallystick.data.frozen import Frozen
from tallystick.errors import UsageError
from tallystick.job.recipes import classify
from tallystick.job.recipes.base import Built, RecipeData, Sources, is_weight, require_fields
from tallystick.job.recipes.settings import step_options
from tallystick.numerics.types import TensorType

if TYPE_CHECKING:
    import torch
    from torch import nn

COLOURS = 3
SOURCES = ("cifar10", "data")
InitialState = Callable[[Mapping[str, TensorType], int], dict[str, Array]]


def load_data(s: Any, sources: Sources, seed: int) -> RecipeData:
    """Columns `x` f32[3, side, side] and `y` i64[]; the last records are held out."""
    found = classify.load_data(s, sources, seed)
    width = found.train["x"].shape[1]
    side = math.isqrt(width // COLOURS)
    if not side or COLOURS * side * side != width:
        raise UsageError(
            f"The records have {width} numbers, which is not a square image of {COLOURS} colours.",
            "Give x as records of shape (3, side, side).",
        )
    for columns in (found.train, found.validation):
        columns["x"] = columns["x"].reshape(-1, COLOURS, side, side)
    return found


def check_frozen(s: Any, frozen: Frozen) -> None:
    """Raise UsageError unless the records are x f32[3, height, width] and y i64[]."""
    require_fields(frozen, {"x": ("f32", 3), "y": ("i64", 0)}, "y")
    (x,) = (f for f in frozen.schema.fields if f.name == "x")
    if x.shape[0] != COLOURS:
        raise UsageError(
            f"The images have {x.shape[0]} channels, but the network takes {COLOURS}.",
            "Freeze images with three channels, channels first.",
        )
    classify.check_classes(s, frozen)


def build_classifier(
    module: nn.Module,
    initial_state: InitialState,
    optimizer: Any,
    rates: dict[str, Any],
    s: Any,
    image: tuple[int, ...],
    seed: int,
) -> Built:
    """Capture the training step, the validation loss and the forward pass of `module`, which is on
    the meta device and gives logits for x f32[n, *image]. The loss is cross-entropy."""
    from torch.nn import functional as F

    from tallystick.program.capture.api import capture, capture_eval, capture_forward

    def loss(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return F.cross_entropy(module(batch["x"]), batch["y"])

    def forward(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = module(batch["x"])
        return out

    module.train()
    batch = {"x": ((s.batch_size, *image), "f32"), "y": ((s.batch_size,), "i64")}
    captured = capture(module, loss, batch, optimizer, **step_options(s))
    types = {n: t for n, t in captured.program.state_types.items() if is_weight(n)}
    return Built(
        captured,
        lambda: captured.state_for(initial_state(types, seed)),
        rates,
        capture_eval(module, loss, batch),
        capture_forward(module, {"x": batch["x"]}, forward),
    )

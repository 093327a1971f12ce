"""The settings that every recipe of a network has: its batch, its rates and its optimizer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tallystick.errors import UsageError
from tallystick.job.recipes.optimizers import CHOICES, check_name, make_optimizer
from tallystick.job.recipes.schedule import SCHEDULES, learning_rate
from tallystick.job.recipes.settings import setting
from tallystick.program.update import Optimizers


@dataclass(frozen=True)
class StepSettings:
    """Keys of `--set`. A recipe derives from this class, and declares a key again for another
    default."""

    recipe: ClassVar[str] = "?"

    batch_size: int = setting(32, "records per step", low=1, high=1 << 20)
    micro_batches: int = setting(0, "number of parts of a batch, computed in turn; 0 = off", low=0)
    lr: float = setting(1e-3, "peak learning rate", low=0)
    warmup: int = setting(20, "steps of linear warm-up", low=0)
    schedule: str = setting("cosine", "constant or cosine (to a tenth of lr)")
    optimizer: str = setting("adamw", CHOICES)
    momentum: float = setting(0.9, "used by SGD and RMSprop", low=0, high=1)
    weight_decay: float = setting(0.01, "applied to matrices and convolutions only", low=0)
    beta1: float = setting(0.9, "used by Adam, AdamW and LAMB", low=0)
    beta2: float = setting(0.999, "used by Adam, AdamW and LAMB", low=0)
    clip_norm: float = setting(1.0, "largest global gradient norm; 0 = off", low=0)
    clip_value: float = setting(0.0, "largest element of a gradient; 0 = off", low=0)
    ema: float = setting(0.0, "decay of averaged parameters; 0 = no average", low=0, high=1)
    validation: float = setting(0.1, "share of the records held out", low=0, high=0.9)

    def __post_init__(self) -> None:
        self.one_of("schedule", SCHEDULES)
        check_name(self.recipe, self.optimizer)
        self.below_one("beta1", "beta2")

    def one_of(self, key: str, known: tuple[str, ...]) -> None:
        """Raise UsageError unless the setting `key` is one of `known`."""
        if getattr(self, key) not in known:
            raise UsageError(
                f"{self.recipe}: {key} must be one of {', '.join(known)}.", f"Change --set {key}."
            )

    def below_one(self, *keys: str) -> None:
        """Raise UsageError unless each of the settings is below 1."""
        for key in keys:
            if not getattr(self, key) < 1:
                raise UsageError(f"{self.recipe}: {key} must be below 1.", f"Change --set {key}.")

    def divides(self, key: str, whole: str) -> None:
        """Raise UsageError unless the setting `key` divides the setting `whole`."""
        part, all_of_it = getattr(self, key), getattr(self, whole)
        if all_of_it % part:
            raise UsageError(
                f"{self.recipe}: {whole}={all_of_it} is not a multiple of {key}={part}.",
                "Choose other values with --set.",
            )

    def rule(self, hidden: Callable[[str, tuple[int, ...]], bool]) -> Optimizers:
        """The optimizer; `hidden(name, shape)` says which matrices Muon takes."""
        return make_optimizer(
            self.optimizer,
            hidden,
            betas=(self.beta1, self.beta2),
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            decay_min_ndim=2,
        )

    def rates(self, steps: int) -> dict[str, Any]:
        """The table of learning rates."""
        return {"lr": learning_rate(steps, self.lr, self.warmup, self.schedule)}

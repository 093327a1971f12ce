"""The settings that every recipe of a network has: its batch, its optimizer by name, and its rates.

Tables of rates are made with the job, from IEEE operations and our own cosine only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tallystick.contracts.ordered.cpu import run_of
from tallystick.errors import UsageError
from tallystick.job.recipes.settings import setting
from tallystick.program.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    AdamW,
    Lion,
    Muon,
    ParameterGroup,
    ParameterGroups,
    RMSprop,
)
from tallystick.program.update import EMA, Optimizers

SCHEDULES = ("constant", "cosine")


def _cosine(x: float) -> float:
    """RN32(cos(RN32(x))), by the contract's own operator (NUMERICS 5)."""
    out = np.empty((), dtype=np.float32)
    run_of("aten.cos")({}, [np.array(x, dtype=np.float32)], [out])
    return float(out)


def warmup_cosine(steps: int, peak: float, warmup: int, floor: float) -> list[float]:
    """A table of `steps` rates: linear to `peak` over `warmup` steps, then half a cosine down to
    peak * floor."""
    table = []
    for step in range(steps):
        if step < warmup:
            table.append(peak * (step + 1) / warmup)
            continue
        progress = (step - warmup) / max(1, steps - warmup)
        low = peak * floor
        table.append(low + 0.5 * (1.0 + _cosine(progress * 3.141592653589793)) * (peak - low))
    return table


def learning_rate(
    steps: int, peak: float, warmup: int, schedule: str, floor: float = 0.1
) -> float | list[float]:
    """A constant, or the table of `schedule` (`constant` or `cosine`)."""
    if schedule == "cosine":
        return warmup_cosine(steps, peak, min(warmup, steps), floor)
    if warmup:
        return [peak * min(1.0, (step + 1) / warmup) for step in range(steps)]
    return peak


RATE = "lr"
_KINDS: dict[str, Callable[..., Any]] = {
    "adafactor": Adafactor,
    "adagrad": Adagrad,
    "adam": Adam,
    "adamw": AdamW,
    "lamb": LAMB,
    "lion": Lion,
    "rmsprop": RMSprop,
    "sgd": SGD,
}
NAMES = (*sorted(_KINDS), "muon")
CHOICES = f"{', '.join(NAMES[:-1])} or {NAMES[-1]} (of matrices inside; AdamW for the rest)"


def check_name(recipe: str, name: str) -> None:
    """Raises UsageError, which lists the names."""
    if name not in NAMES:
        raise UsageError(
            f"{recipe}: optimizer must be one of {', '.join(NAMES)}.", "Change --set optimizer."
        )


def make_optimizer(
    name: str,
    hidden: Callable[[str, tuple[int, ...]], bool],
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    momentum: float = 0.0,
    **options: Any,
) -> Optimizers:
    """The optimizer `name` whose rate is the table `lr`; `options` are those of weight decay.

    Muon takes the matrices for which `hidden(name, shape)` holds, at rates of the size that AdamW
    has, which takes the rest.
    """
    if name == "muon":
        inside = Muon(RATE, adjust_lr="match_rms_adamw", **options)
        rest = AdamW(RATE, betas=betas, **options)
        members = {"hidden": ParameterGroup(inside, hidden), "rest": ParameterGroup(rest)}
        return ParameterGroups(members)
    if name in ("adam", "adamw", "lamb"):
        options["betas"] = betas
    if name in ("sgd", "rmsprop"):
        options["momentum"] = momentum
    made: Optimizers = _KINDS[name](lr=RATE, **options)
    return made


def step_options(settings: Any) -> dict[str, Any]:
    """The arguments of `capture` that a recipe's settings of these names give. Each setting is off
    at 0, and a recipe need not have it."""
    clip_norm, clip_value, decay, parts = (
        getattr(settings, name, 0) for name in ("clip_norm", "clip_value", "ema", "micro_batches")
    )
    return {
        "clip_norm": clip_norm or None,
        "clip_value": clip_value or None,
        "ema": EMA(decay) if decay else None,
        "micro_batches": parts or None,
    }


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

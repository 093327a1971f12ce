"""The optimizers that recipes take by name, with the recipe's own rates and options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallystick.errors import UsageError
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

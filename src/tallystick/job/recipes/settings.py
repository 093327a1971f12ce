"""Settings of a recipe: documented keys with types and defaults, set by `--set key=value`. Every
recipe of a network has the same ones of its batch, its optimizer by name, and its rates.

Tables of rates are made with the job, from IEEE operations and our own cosine only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints

import numpy as np

from tallystick.contracts.ordered.cpu import run_of
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

Settings = TypeVar("Settings")


def setting(default: Any, help: str, **limits: float) -> Any:
    """A field of a settings dataclass; `limits` are `low` and `high`, inclusive."""
    return dataclasses.field(default=default, metadata={"help": help, **limits})


def describe(kind: type) -> list[tuple[str, str, str, str]]:
    """(key, type, default, help) of every setting of the dataclass `kind`."""
    hints = get_type_hints(kind)
    return [
        (f.name, hints[f.name].__name__, str(f.default), f.metadata["help"])
        for f in dataclasses.fields(kind)
    ]


def parse_pairs(pairs: list[str]) -> dict[str, str]:
    """`key=value` strings as a dict; the last value of a repeated key wins. Raises UsageError."""
    found = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"{pair!r} is not KEY=VALUE.", "Write KEY=VALUE, such as n_layer=4.")
        found[key.strip()] = value.strip()
    return found


def build(kind: type[Settings], given: Mapping[str, str], recipe: str) -> Settings:
    """An instance of `kind` with the values of `given`, and defaults for all others.

    Raises UsageError for an unknown key (it lists the known ones), a value of another type, or a
    value outside its limits.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    unknown = sorted(set(given) - set(fields))
    if unknown:
        raise UsageError(
            f"The recipe {recipe} has no setting {unknown[0]!r}.",
            f"Its settings are {', '.join(sorted(fields))}.",
        )
    values = {}
    for key, text in given.items():
        value = _convert(hints[key], text, f"{recipe}: {key}")
        low, high = fields[key].metadata.get("low"), fields[key].metadata.get("high")
        if (low is not None and value < low) or (high is not None and value > high):
            raise UsageError(
                f"{recipe}: {key}={text} is out of range.",
                f"Choose a value from {low} to {high}."
                if high is not None
                else f"Choose at least {low}.",
            )
        values[key] = value
    return kind(**values)


def _convert(kind: type, text: str, what: str) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        value = kind(text)
    except (ValueError, KeyError):
        raise UsageError(
            f"{what} must be of the type {kind.__name__}, but it is {text!r}.",
            "Change it with --set.",
        ) from None
    if kind is float and not abs(value) < float("inf"):
        raise UsageError(f"{what} must be finite.", "Give a finite number with --set.")
    return value


def counts(recipe: str, key: str, text: str, most: int) -> tuple[int, ...]:
    """A setting such as 3-4-6-3: at most `most` counts from 1 to 999. Raises UsageError."""
    parts = text.split("-")
    if not all(p.isascii() and p.isdigit() and 1 <= int(p[:4]) < 1000 for p in parts):
        raise UsageError(
            f"{recipe}: {key}={text} is not a list of counts from 1 to 999.",
            f"Write counts with hyphens, such as --set {key}=3-4-6-3.",
        )
    if len(parts) > most:
        raise UsageError(f"{recipe}: {key} has more than {most} stages.", f"Change --set {key}.")
    return tuple(int(p) for p in parts)


def as_strings(settings: Any) -> dict[str, str]:
    """All settings as strings, which a job keeps and `build` reads back."""
    found = {}
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        found[f.name] = repr(value) if isinstance(value, float) else str(value)
    return found


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

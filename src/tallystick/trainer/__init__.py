"""Adapters: the loops that people have, as signed runs (docs/tutorials/trainer.md).

`Trainer` stands for transformers' class, `fit` for a plain loop, `fit_lightning` for Lightning's.
Each reads what its loop would do into a `Course`, and a course becomes a job and a run. This room
stands above Python's interface. Nothing of the package imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystick.errors import CannotCheckError

if TYPE_CHECKING:
    from tallystick.trainer.huggingface import Trainer as Trainer
    from tallystick.trainer.lightning import fit_lightning as fit_lightning
    from tallystick.trainer.loop import fit as fit

# Where each name stands, and the extra that it needs.
_MODULES = {
    "Trainer": ("huggingface", "hf"),
    "fit": ("loop", "train"),
    "fit_lightning": ("lightning", "train"),
}
_FOREIGN = ("torch", "transformers", "accelerate")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tallystick.trainer' has no attribute {name!r}")
    import importlib

    module, extra = _MODULES[name]
    try:
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _FOREIGN:
            raise
        return _without(name, str(error.name), extra)


def _without(name: str, missing: str, extra: str) -> type:
    """A stand-in that says at its first use what is not installed."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise CannotCheckError(
            f"tallystick.{name} needs the package {missing}.",
            f"Run pip install 'tallystick[{extra},train]'.",
        )

    return type(name, (), {"__new__": refuse, "__init_subclass__": refuse})

"""Tallystick: machine-learning training that anyone can repeat to the same bits.

Importing this package needs neither torch nor a compiler; names are loaded when first used.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# numpy's OpenBLAS reads it as it is loaded. By default its threads spin for tens of milliseconds
# after each product, on processors that the core's threads want (benchmarks/NOTES.md, R1). Four is
# the least it takes: 2^4 cycles. Where numpy is loaded before, steps are slower and no bit differs.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

from tallystick import errors as errors

if TYPE_CHECKING:
    from tallystick.api import Capture as Capture
    from tallystick.api import capture as capture
    from tallystick.numerics.evaluate import evaluate as evaluate
    from tallystick.program.capture.eager import reproducible as reproducible
    from tallystick.program.optimizers import SGD as SGD
    from tallystick.program.optimizers import Adam as Adam
    from tallystick.program.optimizers import AdamW as AdamW
    from tallystick.run import audit as audit
    from tallystick.run import train as train

_HOMES = {
    "Capture": "tallystick.api",
    "capture": "tallystick.api",
    "evaluate": "tallystick.numerics.evaluate",
    "reproducible": "tallystick.program.capture.eager",
    "SGD": "tallystick.program.optimizers",
    "Adam": "tallystick.program.optimizers",
    "AdamW": "tallystick.program.optimizers",
    "audit": "tallystick.run",
    "train": "tallystick.run",
}

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Capture",
    "audit",
    "capture",
    "evaluate",
    "reproducible",
    "train",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'tallystick' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_HOMES[name]), name)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise errors.CannotCheckError(
            f"tallystick.{name} needs PyTorch.", "pip install 'tallystick[train]'."
        ) from None


def __dir__() -> list[str]:
    return sorted(__all__)

"""Trackers: what a training tells MLflow, Weights & Biases or TensorBoard (docs/CLAIMS.md).

Each is a listener of `train`. It logs the curves, and at the end the run root beside them, so that
a page of curves says which run anyone may repeat. What it logs changes no bit of the run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystick.trackers.tracker import MLflow as MLflow
    from tallystick.trackers.tracker import TensorBoard as TensorBoard
    from tallystick.trackers.tracker import WandB as WandB

__all__ = ["MLflow", "TensorBoard", "WandB"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tallystick.trackers' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.tracker"), name)

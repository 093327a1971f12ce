"""`train --track TOOL[=WHERE]`: the trackers that a command line names."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.run.execute.listener import Listener


def tracker_of(text: str) -> Listener:
    """The tracker that `text` names. Raises UsageError, CannotCheckError for a missing package."""
    from tallystick.trackers import MLflow, TensorBoard, WandB

    tool, _, where = text.partition("=")
    if tool == "tensorboard" and where:
        return TensorBoard(where)
    if tool == "mlflow":
        return MLflow(where) if where else MLflow()
    if tool == "wandb":
        return WandB(where) if where else WandB()
    raise UsageError(
        f"{text[:80]!r} names no known tracker.",
        "Write tensorboard=DIR, mlflow, mlflow=EXPERIMENT, wandb or wandb=PROJECT.",
    )

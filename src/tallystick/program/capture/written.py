"""Buffers that a pass of validation changes and a training step reads (PROGRAM 5.19 f).

A pass writes no state. In a loop as it is written, the next step would find what the pass has left.
"""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.errors import UsageError
from tallystick.program.capture.slot_uses import results_from, writes
from tallystick.program.capture.trace import Request, Trace

Ways = Sequence[tuple[Request, Trace]]


def refuse_written(training: Ways, evaluation: Ways) -> None:
    """Raises UsageError for such a buffer, by its name."""
    for _, traced in evaluation:
        for name in traced.inputs:
            if not name.startswith("buffer.") or not writes(traced, name):
                continue
            if any(results_from(step, name) - {name} for _, step in training):
                said = name.removeprefix("buffer.")
                raise UsageError(
                    f"A pass of validation changes the buffer {said}, and the training step reads "
                    "it: a job's pass leaves no buffer changed.",
                    "Change it where module.training is true alone, or give a validation loss that "
                    "only computes.",
                )

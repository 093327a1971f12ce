"""The Python entry: from a user's own module and data to a job directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.errors import UsageError
from tallystick.numerics.environment import exact_environment
from tallystick.program.capture.api import CapturedStep, capture_eval, capture_forward
from tallystick.program.capture.api import capture as capture_step
from tallystick.program.ir import Program
from tallystick.program.optimizers import SGD, Adam, AdamW, Optimizer
from tallystick.run.job import DEFAULT_INTERVAL, Job
from tallystick.run.save import save_job

if TYPE_CHECKING:
    from torch import nn

    from tallystick.program.capture.trace import BatchLoss


@dataclass(frozen=True)
class Capture:
    """A captured training step with its evaluation programs, ready to become a job."""

    step: CapturedStep
    evaluation: Program
    forward: Program | None

    @property
    def program(self) -> Program:
        """The training step's program; `.text()` is what is hashed."""
        return self.step.program

    def save_job(
        self,
        directory: str | Path,
        data: Mapping[str, Any],
        *,
        steps: int,
        seed: int = 0,
        checkpoint_interval: int = DEFAULT_INTERVAL,
        schedules: Mapping[str, float | Sequence[float]] | None = None,
        validation: Mapping[str, Any] | None = None,
        evaluate_every: int = 0,
    ) -> Job:
        """Write the job directory; returns the loaded job.

        `data` maps each batch tensor's name to an array (N, *shape of one record). `seed` keys
        dropout and the order of the data. `schedules` has a table of `steps` numbers for a
        learning rate given by name. Raises UsageError for data that does not fit the program,
        StorageError where the directory cannot be written.
        """
        return save_job(
            self.step,
            directory,
            data,
            steps=steps,
            seed=seed,
            checkpoint_interval=checkpoint_interval,
            schedules=schedules,
            validation=validation,
            eval_program=self.evaluation if validation is not None else None,
            evaluate_every=evaluate_every if validation is not None else 0,
            forward_program=self.forward,
        )


@exact_environment()
def capture(
    module: nn.Module,
    loss: BatchLoss,
    batch: Mapping[str, Any],
    optimizer: Optimizer,
    *,
    clip_norm: float | None = None,
    forward: BatchLoss | None = None,
    outputs_grads: bool = False,
    contract: str = "ordered/1",
) -> Capture:
    """Capture a training step of `module`: forward, loss, backward, optimizer update.

    `loss(module, batch)` gets a dict of tensors and returns a scalar f32 tensor; `batch` gives
    an example of every tensor (its first axis is the batch). `optimizer` is `tallystick.SGD`,
    `Adam` or `AdamW`. `forward(module, batch)`, if given, becomes the inference program that
    `tallystick sample` and users of the exported model can run. `contract` fixes the meaning of
    every operator: "ordered/1", "rounded/1", "replay/1", with numbers as in "rounded/1;b=28".

    Raises UsageError when the model cannot become a program, UnsupportedOperatorError (naming
    operator and module path) for an operator the contract does not define.
    """
    if not isinstance(optimizer, (SGD, Adam, AdamW)):
        raise UsageError(
            f"The optimizer is a {type(optimizer).__module__}.{type(optimizer).__name__}.",
            "Give tallystick.SGD, tallystick.Adam or tallystick.AdamW.",
        )
    if clip_norm is not None and not 0 < clip_norm < float("inf"):
        raise UsageError(f"clip_norm is {clip_norm}.", "Give a positive number, or None.")
    step = capture_step(
        module,
        loss,
        batch,
        optimizer,
        clip_norm=clip_norm,
        outputs_grads=outputs_grads,
        contract=contract,
    )
    evaluation = capture_eval(module, loss, batch, contract)
    inference = None
    if forward is not None:
        inference = capture_forward(module, batch, forward, contract)
    return Capture(step, evaluation, inference)

"""The validation loss of a state: it informs, and enters no root."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tallystick.devices.context import DEFAULT, ExecutionContext, in_its_context
from tallystick.devices.device import Tensor
from tallystick.errors import CannotCheckError
from tallystick.job.job import Job
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs


class Evaluator:
    """Mean loss over the job's validation records, in batches of the captured size.

    Records that do not fill a last batch are left out. A loss that draws random numbers gets those
    of the job's seed and the batch's number, so that every evaluation has the same ones.
    """

    def __init__(self, job: Job, context: ExecutionContext = DEFAULT) -> None:
        if job.eval_program is None or job.evaluation is None:
            raise CannotCheckError(
                f"The job {job.directory} has no validation data.",
                "Make a job with validation: save_job(validation=..., eval_program=...), or a "
                "recipe.",
            )
        self._job = job
        self._size = job.evaluation.batch_size
        self._batches = job.evaluation.record_count // self._size
        self._executor = Executor(job.eval_program, context)
        self.context = context

    @in_its_context
    def loss(self, slots: Mapping[str, Tensor], batches: int | None = None) -> float:
        """The validation loss of the state `slots`, a binary32 value.

        `batches` limits the number of batches, for a measurement of time."""
        count = self._batches if batches is None else batches
        total = np.float64(0)
        columns = self._job.validation_columns
        program = self._executor.program
        state = {name: slots[name] for name in program.state_types}
        for index in range(count):
            part = slice(index * self._size, (index + 1) * self._size)
            batch = {name: np.ascontiguousarray(column[part]) for name, column in columns.items()}
            key = (self._job.commitment.rng_seed, index) if program.uses_rng else None
            result = self._executor.execute(state, StepInputs(batch, rng=key))
            total += np.float64(result.loss if result.loss is not None else np.nan)
        with np.errstate(over="ignore"):
            return float(np.float32(total / count))

"""Runs the steps of a job through an executor's hook, without a run on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tallystick.job.job import Job
from tallystick.numerics.contracts import find_contract
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.run.execute.engine import Engine


def under(program: Program, contract: str) -> Program:
    """The same program under another contract."""
    return replace(program, contract=find_contract(contract).text)


class Steps:
    """A job's steps under LoggedSteps, or anything else with `kernels` and `begin`."""

    def __init__(self, job: Job, program: Program, logs: Any) -> None:
        self.engine = Engine(job, job.genesis())
        self.logs = logs
        self.state = {k: v.copy() for k, v in job.genesis().slots.items()}
        self.executor = Executor(program, kernels=logs.kernels)
        self.digests: list[bytes] = []

    def run(self, first: int, last: int, seen: Callable[[int], None] | None = None) -> None:
        """Steps first..last-1; `seen(step)` after each."""
        for step in range(first, last):
            self.logs.begin(step)
            key = (self.engine.job.commitment.rng_seed, step)
            self.executor.run_step(
                self.state, self.engine.batch(step), self.engine.scalars(step), key
            )
            if hasattr(self.logs, "finish"):
                self.digests.append(self.logs.finish())
            if seen is not None:
                seen(step)

    def distance(self, other: Steps) -> float:
        """The l2 distance of all float state; 0 also means equal bits, signs of zeros included."""
        total, equal = 0.0, True
        for name, mine in self.state.items():
            theirs = other.state[name]
            equal &= mine.tobytes() == theirs.tobytes()
            if mine.dtype.kind == "f":
                total += float(((mine.astype(np.float64) - theirs) ** 2).sum())
        assert equal == (total == 0), "bits differ where values do not"
        return float(np.sqrt(total))

"""One execution of a job, step by step: what a trainer and an auditor do alike.

The engine derives batch, scalars and random key of every step from the job alone, advances the
state and the chains, and hashes where asked. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tallystick import _core
from tallystick.commit.data import batch_columns, batch_indices
from tallystick.commit.state import extend_loss_chain, loss_bits
from tallystick.commit.tensor import Array, check_canonical
from tallystick.numerics.environment import check_environment as check_environment
from tallystick.program.executor import Executor
from tallystick.run.job import Job
from tallystick.run.nodes import NodeTrace, NodeTracer
from tallystick.run.state import State

# A declared cheat: may change the state or the batch before a step (DESIGN 7). Never set by
# an honest party.
Override = Callable[[int, State, dict[str, Array]], None]


def is_finite(bits: int) -> bool:
    """True for the bits of a finite binary32."""
    return bits & 0x7F800000 != 0x7F800000


@dataclass
class Engine:
    """`job` being executed from `state`, which is state[`step`]."""

    job: Job
    state: State
    step: int = 0
    threads: int | None = None
    override: Override | None = None

    def __post_init__(self) -> None:
        check_environment()
        if self.threads is not None:
            _core.set_threads(self.threads)
        self._executor = Executor(self.job.program)

    @property
    def arena_bytes(self) -> int:
        """Working memory of a step beside the state."""
        return self._executor.arena_bytes

    def batch(self, step: int) -> dict[str, Array]:
        """The batch tensors of `step` (COMMITMENTS 8.4, 8.5)."""
        c = self.job.commitment
        if not self.job.schema.fields:
            return {}
        indices = batch_indices(c.order_seed, c.record_count, step, c.batch_size)
        columns = batch_columns(self.job.columns, indices)
        for name, array in columns.items():
            check_canonical(array, f"batch tensor {name}")
        return columns

    def scalars(self, step: int) -> dict[str, float]:
        """The per-step scalars of `step` (COMMITMENTS 7.3)."""
        return {
            name: table if isinstance(table, float) else table[step]
            for name, table in self.job.scalars.items()
        }

    def run(self, trace: bool = False) -> tuple[int, Mapping[str, Array], NodeTrace | None]:
        """Execute the next step: bits of its loss, the program's metrics, the node trace.

        Raises NodeError where an operator refuses its operands (the state is unchanged).
        """
        step, state = self.step, self.state
        batch = self.batch(step)
        if self.override is not None:
            self.override(step, state, batch)
        tracer = None
        if trace:
            program = self.job.program
            tracer = NodeTracer(program, self.job.commitment.program_digest, step)
        result = self._executor.run_step(
            state.slots,
            batch,
            self.scalars(step),
            (self.job.commitment.rng_seed, step),
            tracer.tap if tracer else None,
        )
        loss = float(np.float32(result.loss if result.loss is not None else np.nan))
        nodes = tracer.finish(loss, state.loss_chain, state.log_chain) if tracer else None
        state.loss_chain = extend_loss_chain(state.loss_chain, step, loss)
        self.step = step + 1
        return loss_bits(loss), result.outputs, nodes

    def checkpoint_due(self, stopped: bool = False) -> bool:
        """True if the state after the last step is committed (COMMITMENTS 6.2)."""
        last = self.step == self.job.steps
        return last or stopped or self.step % self.job.interval == 0

    def stops(self, bits: int) -> bool:
        """True if a loss with these bits ends the run (COMMITMENTS 6.2)."""
        return self.job.commitment.stop_on_non_finite and not is_finite(bits)

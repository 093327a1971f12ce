"""One execution of a job, step by step, as a trainer, an auditor and a prover all need it.

The engine derives the batch, scalars and random key of every step from the job alone. It advances
the state and the chains, and hashes where the caller asks. It writes nothing. A declared cheat's
engine (`run.cheats`) replaces the small methods below, so that a party that repeats a cheat gets
the cheat's bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from tallystick.commit.data import batch_columns
from tallystick.commit.job import STOP_SLOT
from tallystick.commit.state import (
    extend_log_chain,
    extend_loss_chain,
    is_finite,
    loss_bits,
    loss_of,
)
from tallystick.commit.tensor import Array, check_canonical
from tallystick.contracts.replay.findings import LogCorruptError
from tallystick.devices.context import DEFAULT, ExecutionContext, in_its_context
from tallystick.devices.device import Device, Run
from tallystick.devices.environment import check_environment as check_environment
from tallystick.errors import StorageError, UsageError
from tallystick.job.job import Job
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.registry import OpSpec
from tallystick.program.ir import Node
from tallystick.program.runner import Runner, Showing, StepInputs, StepResult, Tap
from tallystick.program.sectioned import executor_of
from tallystick.program.state import State
from tallystick.run.execute.nodes import NodeTracer
from tallystick.run.store.unsigned import NodeTrace


class StepLog(Protocol):
    """The rounding logs of the steps that an engine executes: recorded, or followed
    (`rounding.steps`).

    The engine calls `begin`, executes one step, and calls `finish` or `abort`. The step's nodes
    run the kernels that `kernels` returns.
    """

    def move_to(self, device: Device) -> None:
        """The kernels get tensors of `device`. Raises UsageError where there are none for it."""

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """Return the kernel of a node, or None for the contract's own."""

    def begin(self, step: int) -> None:
        """Prepare for the execution of step `step`."""

    def finish(self) -> bytes:
        """End the step; return the digest of its log (COMMITMENTS 10.5) for the log chain."""

    def abort(self) -> None:
        """Drop the log of a step that was broken off."""


@dataclass
class Engine:
    """Executes `job` from `state`, which is state[`step`].

    `log` keeps or follows the rounding logs of a contract that has them. `last_step` is the step
    after which the run ends if no loss ends it earlier.
    """

    job: Job
    state: State
    step: int = 0
    context: ExecutionContext = DEFAULT
    log: StepLog | None = None

    def __post_init__(self) -> None:
        check_environment()
        keeps = parse_contract(self.job.commitment.contract).keeps_log
        if keeps != (self.log is not None):
            raise UsageError(
                f"A step under {self.job.commitment.contract} {'needs' if keeps else 'has no'} "
                "rounding log.",
                "Pass an object that records or follows one.",
            )
        if self.log is not None:
            self.log.move_to(self.context.device)
        self._runners: dict[int, Runner] = {}
        self._runner_at(self.step)
        with self.context.entered():
            self.state.move_to(self.context.device)
        self.last_log: bytes | None = None  # the digest of the last step's log
        # Called before a step changes the first byte of the state: until then a checkpoint's
        # thread may read it (checkpoints.py).
        self.before_write: Callable[[], None] = nothing
        # Gets one sentence for a person about what a step met and went on from.
        self.notice: Callable[[str], None] = _unheard
        self.last_step = self.job.steps

    @property
    def arena_bytes(self) -> int:
        """Working memory of the programs executed so far, beside the state."""
        return sum(runner.arena_bytes for runner in self._runners.values())

    @property
    def hashes_beside(self) -> bool:
        """True if another thread may hash the state until `before_write` is called."""
        return self.context.device.hashes_beside

    def _runner_at(self, step: int) -> Runner:
        """The runner of the program of `step`, made at its first use."""
        number = self.job.commitment.timetable.at(step).program
        if number not in self._runners:
            self._runners[number] = self._runner_of(number)
        return self._runners[number]

    def _runner_of(self, number: int) -> Runner:
        hook = None if self.log is None else self.log.kernels
        entry = self.job.commitment.timetable.programs[number]
        return executor_of(self.job.texts[number], entry.micro_batches, self.context, hook)

    def batch(self, step: int) -> dict[str, Array]:
        """The batch tensors of `step` (COMMITMENTS 7.6.4, 8.4, 8.5)."""
        timetable = self.job.commitment.timetable
        occasion = timetable.at(step)
        data = timetable.programs[occasion.program].data
        if data is None:
            return {}
        columns = batch_columns(self.job.columns_of[data], timetable.indices(occasion))
        for name, array in columns.items():
            check_canonical(array, f"batch tensor {name}")
        return columns

    def scalars(self, step: int) -> dict[str, float]:
        """The per-step scalars of `step` (COMMITMENTS 7.3, 7.6.5)."""
        return self.job.loose_terms.scalars_at(step)

    @in_its_context
    def root(self, digests: Mapping[str, bytes] | None = None) -> bytes:
        """The root that this run commits to for its present state (COMMITMENTS 5.3).

        `digests` are the digests of the slots, where the caller knows them already."""
        return self.state.root() if digests is None else self.state.root_of(digests)

    @in_its_context
    def run(self, trace: bool = False) -> tuple[int, Mapping[str, Array], NodeTrace | None]:
        """Execute the next step; return the bits of its loss, the program's metrics, the node
        trace.

        Raises NodeError where an operator refuses its operands (the state is unchanged).
        """
        step, state = self.step, self.state
        tracer = self.tracer() if trace else None
        computed, outputs = self._advance(tracer.tap if tracer else None)
        bits, log = self._entered(computed), self.chained_log
        nodes = tracer.finish(computed, bits, state, log).trace() if tracer else None
        state.loss_chain = extend_loss_chain(state.loss_chain, step, loss_of(bits))
        state.log_chain = extend_log_chain(state.log_chain, step, log)
        self.step = step + 1
        return bits, outputs, nodes

    # -- the next step, looked at (PROTOCOL 5, 6) ------------------------------------------------

    def tracer(self) -> NodeTracer:
        """Make a tracer, which digests the nodes of the next step through a tap."""
        timetable, terms = self.job.commitment.timetable, self.job.loose_terms
        number = timetable.at(self.step).program
        program, digest = terms.programs[number], timetable.programs[number].digest
        return NodeTracer(program, digest, self.step, self.context.device)

    @in_its_context
    def look(self, tap: Tap) -> tuple[int, int]:
        """Execute the next step node by node without advancing.

        Returns the bits of the loss as computed and as it enters the chain. The engine shows
        every node with its operands to `tap` (Runner.execute). Afterwards `last_log` is the
        digest of the step's log.
        """
        bits = _bits_of(self.execute_step(tap, advance=False))
        return bits, self._entered(bits)

    @in_its_context
    def look_at(self, node: int, tap: Tap) -> None:
        """As `look`, for a caller that wants the operands of one node, which is no fold over
        micro-batches: no more than that takes is executed. A log is of whole steps."""
        if self.log is not None:
            self.look(tap)
            return
        self._runner_at(self.step).show_node(self.state.slots, self._inputs(), node, tap)

    @property
    def shows_folded(self) -> bool:
        """True if `look` shows the operands of folds over micro-batches of the next step, which
        then are in memory together."""
        return self._runner_at(self.step).holds_folded or self.changes_nodes()

    # -- replaced by a declared cheat (run.cheats.engine) ----------------------------------------

    def _advance(self, tap: Tap | None) -> tuple[int, Mapping[str, Array]]:
        """Execute the step; return the bits of its loss as computed, and the program's metrics."""
        result = self.execute_step(tap, advance=True)
        return _bits_of(result), result.outputs

    def _entered(self, bits: int) -> int:
        """The loss that enters the chain for the computed loss `bits` (COMMITMENTS 5.5)."""
        return bits

    def changes_nodes(self) -> bool:
        """True if a tap of the next step may change what nodes have made: it then has to see what
        folds read."""
        return False

    def _inputs(self) -> StepInputs:
        """What the next step reads beside the state."""
        step = self.step
        key = self.job.commitment.random_key(step)
        return StepInputs(self.batch(step), self.scalars(step), key)

    def execute_step(self, tap: Tap | None, advance: bool) -> StepResult:
        """Execute the program on the next step's batch, scalars and key."""
        step, inputs = self.step, self._inputs()
        showing = None if tap is None else Showing(tap, advance, self.changes_nodes())
        execute = partial(
            self._runner_at(step).execute, self.state.slots, inputs, showing, self.before_write
        )
        if self.log is None:
            return execute()
        self.log.begin(step)
        try:
            result = execute()
            self.last_log = self.log.finish()
        except BaseException as error:
            self.log.abort()
            # A full disk is not the node's fault. The state in memory is lost all the same.
            if isinstance(error.__cause__, (StorageError, LogCorruptError)):
                raise error.__cause__ from None
            raise
        return result

    @property
    def chained_log(self) -> bytes | None:
        """The digest of the last step's log as it enters the log chain (COMMITMENTS 5.6)."""
        return self.last_log

    def session_end(self) -> Mapping[str, int]:
        """What the journal's record of a session's end says besides what the trainer knows."""
        return {}

    def checkpoint_due(self, stopped: bool = False) -> bool:
        """True if the state after the last step is committed (COMMITMENTS 6.2)."""
        return self.step == self.last_step or stopped or self.step % self.job.interval == 0

    def stops(self, bits: int) -> bool:
        """True if the run ends after the last step, whose loss has these bits (COMMITMENTS 6.2,
        7.6.7)."""
        c = self.job.commitment
        if c.stop_on_non_finite and not is_finite(bits):
            return True
        return c.stop_on_slot and bool(self.context.device.host(self.state.slots[STOP_SLOT]))


def nothing() -> None:
    """Before a write: nobody has to be told of it."""


def _unheard(text: str) -> None:
    return None


def _bits_of(result: StepResult) -> int:
    return loss_bits(np.float32(result.loss if result.loss is not None else np.nan))

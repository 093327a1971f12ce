"""One execution of a job, step by step: what a trainer, an auditor and a prover do alike.

The engine derives batch, scalars and random key of every step from the job alone, advances the
state and the chains, and hashes where asked. It writes nothing. A declared cheat (override.py)
acts through its hooks here and nowhere else, so that whoever repeats a cheat gets its bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tallystick import _core
from tallystick.commit.data import batch_columns, batch_indices
from tallystick.commit.state import extend_log_chain, extend_loss_chain, loss_bits
from tallystick.commit.tensor import Array, check_canonical
from tallystick.errors import StorageError, UsageError
from tallystick.job.job import Job
from tallystick.kernels.environment import check_environment as check_environment
from tallystick.kernels.environment import exact_environment
from tallystick.kernels.table import Run
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.registry import OpSpec
from tallystick.program.executor import Executor, StepResult, Tap
from tallystick.program.ir import Node
from tallystick.program.state import State
from tallystick.rounding.faults import LogCorruptError
from tallystick.run.execute.nodes import NodeTrace, NodeTracer
from tallystick.run.execute.override import Override


def is_finite(bits: int) -> bool:
    """True for the bits of a finite binary32."""
    return bits & 0x7F800000 != 0x7F800000


def last_step(job: Job, override: Override | None) -> int:
    """The step after which a run of `job` ends if no loss ends it before.

    Raises UsageError where a declared cheat names a step that the job has not.
    """
    if override is None:
        return job.steps
    step = override.final_step(job)
    if not 0 < step <= job.steps:
        raise UsageError(
            f"The declared override ends after {step} steps, the job has {job.steps}.",
            "Give it a step of the job.",
        )
    return step


class StepLog(Protocol):
    """The rounding logs of the steps that an engine executes: recorded, or followed (logs.py).

    Between `begin` and `finish` (or `abort`) lies the execution of one step, whose nodes run the
    kernels that the hook gives.
    """

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The kernel of a node, None for the contract's own."""

    def begin(self, step: int) -> None:
        """Step `step` is about to be executed."""

    def finish(self) -> bytes:
        """It is done: the digest of its log (COMMITMENTS 10.5), which enters the log chain."""

    def abort(self) -> None:
        """It was broken off: what it has left behind does not count."""


@dataclass
class Engine:
    """`job` being executed from `state`, which is state[`step`].

    `log` keeps or follows the rounding logs of a contract that has them; `override` is a declared
    cheat (DESIGN 7), never set by an honest party; `last_bits` are the bits of the last step's
    loss, which only a cheat that skips steps needs.
    """

    job: Job
    state: State
    step: int = 0
    threads: int | None = None
    override: Override | None = None
    last_bits: int = 0
    log: StepLog | None = None

    def __post_init__(self) -> None:
        check_environment()
        if self.threads is not None:
            _core.set_threads(self.threads)
        keeps = parse_contract(self.job.commitment.contract).keeps_log
        if keeps != (self.log is not None):
            raise UsageError(
                f"A step under {self.job.commitment.contract} {'needs' if keeps else 'has no'} "
                "rounding log.",
                "Execute it with what records or follows one.",
            )
        hook = None if self.log is None else self.log.kernels
        self._executor = Executor(self.job.program, kernels=hook)
        self.last_log: bytes | None = None  # the digest of the last step's log
        self.last_step = last_step(self.job, self.override)

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

    def root(self, digests: Mapping[str, bytes] | None = None) -> bytes:
        """The root that this run commits to for the state it is in (COMMITMENTS 5.3), whose
        slots have these digests if they are known already."""
        root = self.state.root() if digests is None else self.state.root_of(digests)
        return root if self.override is None else self.override.root(self.step, root)

    @exact_environment()
    def run(self, trace: bool = False) -> tuple[int, Mapping[str, Array], NodeTrace | None]:
        """Execute the next step: bits of its loss, the program's metrics, the node trace.

        Raises NodeError where an operator refuses its operands (the state is unchanged).
        """
        step, state, lie = self.step, self.state, self.override
        if lie is not None:
            lie.before(step, state)
        if lie is not None and lie.skips(step):
            tracer, outputs, bits = None, {}, self.last_bits
            self._log_of_skipped()
        else:
            tracer = self.tracer() if trace else None
            result = self._execute(tracer.tap if tracer else None, advance=True)
            outputs, bits = result.outputs, _bits_of(result)
        computed = bits
        if lie is not None:
            bits = lie.loss(step, bits)
        log = self.chained_log
        nodes = tracer.finish(computed, bits, state, log).trace() if tracer else None
        state.loss_chain = extend_loss_chain(state.loss_chain, step, loss_of(bits))
        state.log_chain = extend_log_chain(state.log_chain, step, log)
        if lie is not None:
            lie.after(step, state)
        self.step, self.last_bits = step + 1, bits
        return bits, outputs, nodes

    # -- the next step, looked at (PROTOCOL 5, 6) ------------------------------------------------

    def tracer(self) -> NodeTracer:
        """What digests the nodes of the next step through a tap."""
        digest = self.job.commitment.program_digest
        return NodeTracer(self.job.program, digest, self.step, self._watched())

    @exact_environment()
    def look(self, tap: Tap) -> tuple[int, int]:
        """Execute the next step node by node and stay where we are: bits of the loss as computed
        and as it enters the chain. `tap` sees every node with its operands (Executor.run_step).

        `last_log` is then the digest of its log. A step that a cheat skips is executed here: its
        nodes are what the job says. Under an override the state has changed as `before` and
        `node` have it: load it anew.
        """
        if self.override is not None:
            self.override.before(self.step, self.state)
        bits = _bits_of(self._execute(tap, advance=False))
        return bits, bits if self.override is None else self.override.loss(self.step, bits)

    def _watched(self) -> bool:
        return self.override is not None and self.override.watches(self.step)

    def _execute(self, tap: Tap | None, advance: bool) -> StepResult:
        """The program on the next step's batch, scalars and key, a cheat's hooks applied."""
        step, lie = self.step, self.override
        key = (self.job.commitment.rng_seed, step)
        if lie is None:
            batch, scalars = self.batch(step), self.scalars(step)
        else:
            batch, scalars = self.batch(lie.data_step(step)), self.scalars(step)
            lie.batch(step, batch)
            lie.scalars(step, scalars)
            key = lie.random_key(step, key)
            if lie.watches(step):
                tap = _lying(lie, step, tap)
        if self.log is None:
            return self._executor.run_step(self.state.slots, batch, scalars, key, tap, advance)
        self.log.begin(step)
        try:
            slots = self.state.slots
            result = self._executor.run_step(slots, batch, scalars, key, tap, advance)
            self.last_log = self.log.finish()
        except BaseException as error:
            self.log.abort()
            # A full disk is none of the node's faults; the state in memory is lost all the same.
            if isinstance(error.__cause__, (StorageError, LogCorruptError)):
                raise error.__cause__ from None
            raise
        return result

    def _log_of_skipped(self) -> None:
        """A cheat that skips a step still has to commit to a log: the one of the step's nodes."""
        if self.log is not None:
            self._execute(lambda *_: None, advance=False)

    @property
    def chained_log(self) -> bytes | None:
        """The digest of the last step's log as it enters the log chain (COMMITMENTS 5.6)."""
        if self.last_log is None or self.override is None:
            return self.last_log
        return self.override.log_digest(self.step, self.last_log)

    def checkpoint_due(self, stopped: bool = False) -> bool:
        """True if the state after the last step is committed (COMMITMENTS 6.2)."""
        return self.step == self.last_step or stopped or self.step % self.job.interval == 0

    def stops(self, bits: int) -> bool:
        """True if a loss with these bits ends the run (COMMITMENTS 6.2).

        A cheat that names its last step ends there, and goes on where an honest run stops.
        """
        chosen = self.last_step != self.job.steps
        return self.job.commitment.stop_on_non_finite and not is_finite(bits) and not chosen


def _bits_of(result: StepResult) -> int:
    return loss_bits(np.float32(result.loss if result.loss is not None else np.nan))


def loss_of(bits: int) -> float:
    """The binary32 loss with these bits."""
    return float(np.uint32(bits).view(np.float32))


def _lying(lie: Override, step: int, tap: Tap | None) -> Tap:
    """A tap that lets `lie` change a node's outputs before anybody sees them."""

    def both(
        index: int, node: Node, inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> None:
        if tap is None:
            lie.node(step, index, node, outputs)
            return
        # An output may be a view of an input: what the node has read is what was there before.
        given = [
            a.copy() if a is not None and any(np.may_share_memory(a, o) for o in outputs) else a
            for a in inputs
        ]
        lie.node(step, index, node, outputs)
        tap(index, node, given, outputs)

    return both

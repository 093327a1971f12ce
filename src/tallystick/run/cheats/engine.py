"""The engine of a cheat: the honest engine, whose inputs, outputs and statements hooks change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.devices.context import in_its_context
from tallystick.devices.cpu import CPU
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.program.runner import StepInputs, StepResult, Tap
from tallystick.run.cheats.override import Override
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.nodes import NodeTracer
from tallystick.run.store.unsigned import NodeTrace


def final_step(job: Job, override: Override) -> int:
    """The step after which a run with this cheat claims to have ended, if no loss ends it before.

    Raises UsageError for a step that the job does not have.
    """
    step = override.final_step(job)
    if not 0 < step <= job.steps:
        raise UsageError(
            f"The declared cheat ends after step {step}, but the job has {job.steps} steps.",
            "Choose a step of the job.",
        )
    return step


@dataclass
class CheatingEngine(Engine):
    """An engine that executes `job` with the hooks of `override`. `last_bits` are the bits of the
    last step's loss. A skipped step has the same loss."""

    override: Override = field(default_factory=Override, kw_only=True)
    last_bits: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.context.device is not CPU:
            raise UsageError(
                "A declared cheat changes arrays on the CPU, so it cannot run on "
                f"{self.context.device.name}.",
                "Play it on the CPU.",
            )
        self.last_step = final_step(self.job, self.override)

    @in_its_context
    def run(self, trace: bool = False) -> tuple[int, Mapping[str, Array], NodeTrace | None]:
        """Execute the next step, or skip it. A skipped step has no trace."""
        step = self.step
        if self.before_write is not None:
            self.before_write()  # the hook may change the state
        self.override.before(step, self.state)
        found = super().run(trace and not self.override.skips(step))
        self.override.after(step, self.state)
        self.last_bits = found[0]
        return found

    @in_its_context
    def look(self, tap: Tap) -> tuple[int, int]:
        """Look at the next step. The hooks `before` and `node` may change the state: the caller
        must load it anew afterwards. A step that the cheat skips is executed here, so that its
        nodes are the job's."""
        self.override.before(self.step, self.state)
        return super().look(tap)

    def look_at(self, node: int, tap: Tap) -> None:
        """The whole step: a hook may count or change any node of it."""
        self.look(tap)

    def changes_nodes(self) -> bool:
        return self.override.watches(self.step)

    def root(self, digests: Mapping[str, bytes] | None = None) -> bytes:
        return self.override.root(self.step, super().root(digests))

    def tracer(self) -> NodeTracer:
        made = super().tracer()
        made.fresh = self.override.watches(self.step)
        return made

    @property
    def chained_log(self) -> bytes | None:
        log = super().chained_log
        return None if log is None else self.override.log_digest(self.step, log)

    def stops(self, bits: int) -> bool:
        """A cheat that names its last step ends there, and one that goes on ends with the job. Both
        pass over the end of an honest run."""
        ends = self.last_step == self.job.steps and not self.override.goes_on()
        return ends and super().stops(bits)

    def _advance(self, tap: Tap | None) -> tuple[int, Mapping[str, Array]]:
        if not self.override.skips(self.step):
            return super()._advance(tap)
        if self.log is not None:  # the run still has to commit to a log of it
            self.execute_step(lambda *_: None, advance=False)
        return self.last_bits, {}

    def _entered(self, bits: int) -> int:
        return self.override.loss(self.step, bits)

    def _inputs(self) -> StepInputs:
        lie, step = self.override, self.step
        key = self.job.commitment.random_key(step)
        batch, scalars = self.batch(lie.data_step(step)), self.scalars(step)
        lie.batch(step, batch)
        lie.scalars(step, scalars)
        return StepInputs(batch, scalars, lie.random_key(step, key))

    def execute_step(self, tap: Tap | None, advance: bool) -> StepResult:
        lies = self.override.watches(self.step)
        return super().execute_step(_lying(self.override, self.step, tap) if lies else tap, advance)


def _lying(lie: Override, step: int, tap: Tap | None) -> Tap:
    """A tap that lets `lie` change a node's outputs before any other code sees them."""

    def both(
        index: int, node: Node, inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> None:
        if tap is None:
            lie.node(step, index, node, outputs)
            return
        # An output may be a view of an input: keep the input's values from before the change.
        given = [
            a.copy() if a is not None and any(np.may_share_memory(a, o) for o in outputs) else a
            for a in inputs
        ]
        lie.node(step, index, node, outputs)
        tap(index, node, given, outputs)

    return both

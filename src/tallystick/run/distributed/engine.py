"""The engine of a run that several workers execute: every worker has one, and all step at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.errors import UsageError
from tallystick.job.step_records import records_of
from tallystick.program.build import piece
from tallystick.program.executor import Executor
from tallystick.program.folded_tail import share
from tallystick.program.ir import COMMIT, Input, Program, Value
from tallystick.program.owners import Owners
from tallystick.program.runner import Runner, Showing, StepInputs, StepResult
from tallystick.run.distributed.messages import Consent
from tallystick.run.distributed.step import DistributedStep
from tallystick.run.distributed.team import Order, Team
from tallystick.run.distributed.transport import PeerLostError, WorkerError
from tallystick.run.execute.engine import Engine
from tallystick.run.store.unsigned import NodeTrace


@dataclass
class TeamEngine(Engine):
    """Executes the run with the other workers of `team`. `state` is a TeamState.

    At worker 0 `run` gives the order, and raises an error that any worker met. At the others it is
    called by the order.
    """

    team: Team = field(kw_only=True)
    repeated: int = field(default=0, init=False)  # steps that were executed once more

    def session_end(self) -> Mapping[str, int]:
        checks = self.team.checks
        if checks is None:
            return {}
        return {"checked_shares": checks.compared, "repeated_steps": self.repeated}

    @property
    def hashes_beside(self) -> bool:
        """Each worker has a share of the state: all hash it together, between two steps."""
        return False

    def run(self, trace: bool = False) -> tuple[int, Mapping[str, Array], NodeTrace | None]:
        if trace:
            raise UsageError("Several workers cannot keep node digests.", "Use one worker.")
        try:
            return self._once()
        except PeerLostError:
            raise
        except WorkerError as error:
            # Bytes that are not those signed are asked for once more, before anyone is named.
            again = self.team.checks is not None and not error.lasts and self._intact()
            if self.team.rank or not again:
                raise
            self.repeated += 1
            self.notice(f"Step {self.step} is executed once more: {error.message}")
            return self._once()

    def _once(self) -> tuple[int, Mapping[str, Array], NodeTrace | None]:
        self.team.give(Order.STEP, self.step)
        if self.team.checks is not None:
            self.team.checks.begin(self.step)
        with self.team.all_alike():
            return super().run()

    def _intact(self) -> bool:
        """Whether no worker has changed its state in the step that failed."""
        return self._runner_at(self.step).state_intact

    def _inputs(self) -> StepInputs:
        """What this worker cannot read, all learn of together, in the step."""
        found: list[StepInputs] = []
        read = super()._inputs
        self.team.consent.attempt(lambda: found.append(read()))
        return found[0] if found else StepInputs({})

    def _runner_of(self, number: int) -> Runner:
        owners, team = self.team.owners, self.team
        if not owners.programs[number].section:
            return AlikeStep(held_part(owners, number), team.consent, self.context)
        parts = self.job.commitment.timetable.programs[number].micro_batches
        return DistributedStep(owners, number, parts, team.consent, self.context, team.checks)

    def batch(self, step: int) -> dict[str, Array]:
        """The records of this worker's micro-batches; the whole batch where a program has none."""
        timetable = self.job.commitment.timetable
        occasion = timetable.at(step)
        entry = timetable.programs[occasion.program]
        if entry.data is None or not self.job.texts[occasion.program].section:
            return super().batch(step)
        parts = share(self.team.rank, self.team.transport.size, entry.micro_batches)
        return records_of(self.job, step, parts)


class AlikeStep(Runner):
    """A program without micro-batches, which every worker executes by itself: what one of them
    cannot do ends the step for all."""

    def __init__(self, program: Program, consent: Consent, context: ExecutionContext) -> None:
        self._executor, self._consent = Executor(program, context), consent

    @property
    def arena_bytes(self) -> int:
        return self._executor.arena_bytes

    @property
    def state_intact(self) -> bool:
        """False: no worker knows how far the others got."""
        return False

    def execute(
        self,
        state: Mapping[str, Tensor],
        inputs: StepInputs,
        showing: Showing | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> StepResult:
        found: list[StepResult] = []
        execute = partial(self._executor.execute, state, inputs, showing, before_write)
        self._consent.attempt(lambda: found.append(execute()))
        self._consent.agree()
        return found[0]


def held_part(owners: Owners, number: int) -> Program:
    """A program without micro-batches over the slots that every worker holds: without those that
    it passes through."""
    program = owners.programs[number]
    index = program.input_index
    kept = [
        (name, value)
        for name, value in program.outputs
        if name not in owners.types or value != Value(-1, index[name])
    ]
    # The commit node computes nothing, and is the last one.
    nodes = [node for node in program.nodes if node.op != COMMIT]

    def place(value: Value) -> Value | Input:
        return program.inputs[value.out] if value.is_input else value

    state = [program.inputs[index[name]] for name, _ in kept if name in owners.types]
    return piece(program.contract, nodes, kept, place, always=state)

"""The prover of a kept answer: its job is in memory, its weights are the model's own files.

No run directory is written. State[0] is read where the model lies, and what the job digest does not
cover is compared before it is used, as everywhere (PROTOCOL 1.4). The run has one step, so every
state is state[0] or one execution away, and no state is kept on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from tallystick.answers.derive import stated_model
from tallystick.answers.model import weights
from tallystick.answers.receipt import SignedReceipt
from tallystick.answers.words import AnyJob
from tallystick.commit.signing import Envelope, PrivateKey
from tallystick.commit.streamed import RecordStream, RecordTree
from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.errors import DigestMismatchError
from tallystick.job.job import Job
from tallystick.program.ir import Program
from tallystick.program.state import State
from tallystick.prover.covered import Notice
from tallystick.prover.prover import Prover
from tallystick.prover.states import RunStates
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import JournalContent

NOWHERE = Path()


@dataclass(frozen=True)
class DisputedAnswer:
    """An answer that its signer answers for: what was kept of it, and where its model lies, with
    the model's adapter if it has one."""

    signed: SignedReceipt
    answer: AnyJob
    program: Program
    model: Path
    adapter: Path | None = None

    def job(self) -> Job:
        """The job as a prover executes it."""
        plain = self.answer.in_memory(self.program)
        job = _AnswerJob(**{field.name: getattr(plain, field.name) for field in fields(plain)})
        held = self.answer.state

        def genesis() -> dict[str, Array]:
            model = stated_model(self.model, self.adapter, self.answer.statement)
            return held(self.program, weights(model))

        # The cached properties: no file has them.
        job.__dict__.update(texts=plain.texts, columns_of=plain.columns_of, first_state=genesis)
        return job

    def prover(self, key: PrivateKey, context: ExecutionContext, notice: Notice) -> AnswerProver:
        """The party to a game about this answer. Raises as Prover."""
        return AnswerProver(self, key, context, notice)


class _AnswerJob(Job):
    """A job whose state[0] and records are in memory."""

    first_state: Callable[[], Mapping[str, Array]]

    def genesis(self) -> State:
        """state[0]. Raises DigestMismatchError where the model's files have other weights."""
        state = State(dict(self.first_state()))
        if state.root() != self.commitment.genesis_root:
            raise DigestMismatchError(
                "The weights here are not those of the disputed answer.",
                "Put the model back. `tallystick kept DIR` prints where it belongs.",
            )
        return state

    def record_tree(self, number: int) -> RecordTree:
        return self._of_memory(number).tree(self.columns_of[number])

    def verify_data(self) -> None:
        self._of_memory(0)

    def _of_memory(self, number: int) -> RecordStream:
        stream = RecordStream(self.schemas[number], keep=True)
        stream.add(self.columns_of[number])
        if stream.root() != self.commitment.timetable.data[number].root:
            raise DigestMismatchError(
                "The stored record is not that of the answer.",
                "Restore the directory of kept answers.",
            )
        return stream


class _AnswerStore(RunStore):
    """What a prover asks of a run directory, where there is none."""

    disputed: DisputedAnswer

    def job(self) -> Job:
        return self.disputed.job()

    def envelope(self) -> Envelope | None:
        return Envelope.from_bytes(self.commitment_bytes())

    def commitment_bytes(self) -> bytes:
        return self.disputed.signed.commitment()

    def journal(self, job: Job | None = None) -> JournalContent:
        receipt, commitment = self.disputed.signed.receipt, self.disputed.answer.commitment
        checkpoints = [(0, commitment.genesis_root), (1, receipt.state)]
        return JournalContent(receipt.job, checkpoints=checkpoints)

    def stored_steps(self) -> list[int]:
        return []


class AnswerProver(Prover):
    """The prover of a kept answer."""

    def __init__(
        self,
        disputed: DisputedAnswer,
        key: PrivateKey,
        context: ExecutionContext,
        notice: Notice = lambda _: None,
    ) -> None:
        self.context = context
        store = _AnswerStore(NOWHERE)
        store.__dict__["disputed"] = disputed
        self._open(store, key, notice)

    def _run_states(self, store: RunStore, notice: Notice) -> RunStates:
        return RunStates(store, self.job, self._journal, self.context, notice, scratch=False)

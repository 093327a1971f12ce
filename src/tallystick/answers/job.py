"""The job of an answer, and the run that its claim implies (ANSWERS 2).

An answer is a run of one step. Model statement, request and tokens give its job, and with the
log-probabilities the roots of its run. Neither needs a weight: a statement has their digests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tallystick.answers.layout import Bucket, Settings, choice_seed, record
from tallystick.answers.programs import LOGPROBS as LOGPROBS
from tallystick.answers.programs import SALT as SALT
from tallystick.answers.programs import TOKENS as TOKENS
from tallystick.answers.programs import answer_slots
from tallystick.answers.request import ModelRequest
from tallystick.answers.spoken import Spoken
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.commit.checkpoint import run_root
from tallystick.commit.data import DataSchema, Field, data_root
from tallystick.commit.job import JobCommitment, scalars_digest
from tallystick.commit.state import (
    CHAIN_START,
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    CommitNode,
    chain_digest,
    state_root,
)
from tallystick.commit.tensor import DTYPES, Array, header_of, tensor_digest
from tallystick.errors import CorruptFileError, DigestMismatchError
from tallystick.job.job import Job
from tallystick.job.parts import STEP, TRAIN, Parts, ProgramPart, Records
from tallystick.job.writing import fills_of, write_job
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.state import State
from tallystick.program.text import parse_text, text_digest


@dataclass(frozen=True)
class AnswerJob:
    """The job of an answer (ANSWERS 2), from the model, the request and the tokens alone.

    `choice` numbers the answers of one request. Raises UsageError for tokens that fit no bucket of
    the model, and for settings that are out of range.
    """

    statement: ModelStatement
    request: ModelRequest
    spoken: Spoken
    choice: int = 0

    @property
    def settings(self) -> Settings:
        return self.request.settings

    @cached_property
    def bucket(self) -> Bucket:
        """The program's sizes (ANSWERS 2.3)."""
        sizes = len(self.spoken.prompt), len(self.spoken.tokens)
        return self.statement.bucket(*sizes, self.settings.set)

    @property
    def program_name(self) -> ProgramName:
        return ProgramName(self.bucket.length, self.bucket.answer, self.settings.set)

    @property
    def program_digest(self) -> bytes:
        return self.statement.programs[self.program_name]

    @cached_property
    def seed(self) -> int:
        """The job's random-number seed: that of the choice (ANSWERS 2.6)."""
        return choice_seed(self.request.seed, self.choice)

    @cached_property
    def columns(self) -> dict[str, Array]:
        """The job's one record, by field (ANSWERS 2.4). A token outside of the vocabulary stands in
        it as it is: its job can be signed, and convicts by itself (ANSWERS 6.3)."""
        spoken, most = self.spoken, self.statement.vocabulary
        text = np.array([*spoken.prompt, *spoken.tokens], np.int64)
        known = np.where((text >= 0) & (text < most), text, 0).tolist()
        count = len(spoken.prompt)
        values = record(
            self.bucket, self.settings, known[:count], known[count:], self.request.record_salt, most
        )
        values["text"][: len(text)] = text
        return {name: array[np.newaxis] for name, array in values.items()}

    @cached_property
    def schema(self) -> DataSchema:
        fields = ((n, header_of(a[0])) for n, a in self.columns.items())
        return DataSchema(tuple(Field(n, header.dtype, header.shape) for n, header in fields))

    @cached_property
    def commitment(self) -> JobCommitment:
        """The fields of the job digest (ANSWERS 2.2)."""
        root = data_root(self.schema, self.columns)
        return commitment_of(self.statement, self.program_name, root, self.seed)

    @cached_property
    def digest(self) -> bytes:
        """The job digest (COMMITMENTS 7.2)."""
        return self.commitment.digest()

    @cached_property
    def genesis(self) -> dict[str, bytes]:
        """The tensor digests of state[0], chains included."""
        return genesis_of(self.statement, self.bucket)

    def first_slots(self) -> dict[str, Array]:
        """The slots of the answer in state[0]: zeros (ANSWERS 2.5)."""
        return zero_slots(self.bucket)

    def claimed_slots(self) -> dict[str, Array]:
        """The slots of the answer in state[1], as the tokens and log-probabilities claim."""
        slots, count = self.first_slots(), len(self.spoken.tokens)
        slots[TOKENS][:count] = self.spoken.tokens
        slots[LOGPROBS][:count] = self.spoken.logprobs
        slots[SALT][:] = self.request.record_salt
        return slots

    @cached_property
    def claimed(self) -> dict[str, bytes]:
        """The tensor digests of state[1] as claimed, without executing anything (ANSWERS 2.8)."""
        slots = self.claimed_slots()
        own = {name: tensor_digest(array) for name, array in slots.items()}
        total = evaluate("aten.sum", slots[LOGPROBS], contract=self.statement.contract)
        loss = np.float32(0) - np.float32(total)  # type: ignore[arg-type]
        made = CommitNode(
            {**weight_digests(self.statement), **own}, 0, float(loss), CHAIN_START, CHAIN_START
        )
        return made.next_state()

    def roots(self) -> tuple[bytes, bytes]:
        """The final state root and the run root that the claim implies (ANSWERS 2.8)."""
        final = state_root(self.claimed)
        return final, run_root(self.digest, [(0, self.commitment.genesis_root), (1, final)])

    # -- with the program and the weights --------------------------------------------------------

    def check_program(self, program: Program) -> None:
        """Raise CorruptFileError unless `program` has the slots and inputs of an answer of this
        model (ANSWERS 2.5): a hostile statement may name any text. What it computes is not seen
        here: whether it is the model's, deriving it again shows (`compared`)."""
        weights = {
            n: TensorType(w.header.dtype, w.header.shape) for n, w in self.statement.weights.items()
        }
        if program.state_types != {**weights, **answer_slots(self.bucket)}:
            _no_answer("its slots are not those of the statement and of an answer")
        if changed := weights.keys() - program.passed_through:
            _no_answer(f"it changes the weight {min(changed)[:80]!r}")
        why = self.in_memory(program).loose_terms.misfit()
        if why is not None:
            _no_answer(why)

    def in_memory(self, program: Program) -> Job:
        """The job as an engine executes it, without a directory."""
        job = Job(Path(), self.commitment, {}, (self.schema,), {}, None, None, None, self._about())
        # The cached properties: no file has them.
        job.__dict__["texts"] = (program,)
        job.__dict__["columns_of"] = (self.columns,)
        return job

    def state(self, program: Program, weights: Mapping[str, Array]) -> dict[str, Array]:
        """The slots of state[0] in the program's order. The caller has compared the weights with
        the statement (`check_weights`)."""
        slots = {**weights, **self.first_slots()}
        return {name: slots[name] for name in program.state_types}

    def digests_after(self, state: State) -> dict[str, bytes]:
        """The tensor digests of `state` after the step, chains included. The weights are those that
        the caller has compared, and pass through (`check_program`): they are not hashed again."""
        held = weight_digests(self.statement)
        own = {n: tensor_digest(state.tensor(n)) for n in state.slots if n not in held}
        return {**held, **own, **state.chain_digests()}

    def write(
        self, directory: Path, program: Program, weights: Mapping[str, Array], overwrite: bool
    ) -> Job:
        """Write the job's directory. Raises UsageError where there is one, StorageError."""
        slots = self.state(program, weights)
        job = Job(
            directory, self.commitment, {}, (self.schema,), fills_of(slots), None, None, None,
            self._about(),
        )  # fmt: skip
        part = ProgramPart.alone(STEP, program, 0, 1)
        parts = Parts((part,), (Records(TRAIN, self.schema, self.columns, 0),))
        return write_job(job, parts, slots, overwrite=overwrite)

    def _about(self) -> dict[str, str]:
        return {"answer of model": self.statement.digest.hex()}


def weight_digests(statement: ModelStatement) -> dict[str, bytes]:
    return {name: weight.digest for name, weight in statement.weights.items()}


def zero_slots(bucket: Bucket) -> dict[str, Array]:
    """The slots of an answer in state[0] (ANSWERS 2.5)."""
    types = answer_slots(bucket).items()
    return {name: np.zeros(type_.shape, DTYPES[type_.dtype]) for name, type_ in types}


def genesis_of(statement: ModelStatement, bucket: Bucket) -> dict[str, bytes]:
    """The tensor digests of state[0] of every answer in a bucket, chains included."""
    own = {name: tensor_digest(array) for name, array in zero_slots(bucket).items()}
    chain = chain_digest(CHAIN_START)
    return {**weight_digests(statement), **own, LOSS_CHAIN_SLOT: chain, LOG_CHAIN_SLOT: chain}


def commitment_of(
    statement: ModelStatement, name: ProgramName, data: bytes, seed: int
) -> JobCommitment:
    """The job of the record with the data root `data`, drawn by `seed`, under the program `name` of
    the statement (ANSWERS 2.1, 2.2)."""
    return JobCommitment(
        contract=statement.contract,
        program_digest=statement.programs[name],
        genesis_root=state_root(genesis_of(statement, Bucket(name.length, name.answer))),
        data_root=data,
        record_count=1,
        batch_size=1,
        order_seed=0,
        rng_seed=seed,
        steps=1,
        checkpoint_interval=1,
        scalars_digest=scalars_digest({}),
        stop_on_non_finite=False,
    )


def check_weights(statement: ModelStatement, weights: Mapping[str, Array]) -> None:
    """Compare weights with the statement, all of them. Raises DigestMismatchError."""
    if odd := set(weights) ^ set(statement.weights):
        raise DigestMismatchError(
            f"The weights here are not those of the model statement: {min(odd)[:80]!r} is in one "
            "of them only.",
            "Name the directory of the model that the statement is of.",
        )
    for name, weight in statement.weights.items():
        if tensor_digest(weights[name]) != weight.digest:
            raise DigestMismatchError(
                f"The weights here are not those of the model statement: {name[:80]!r} differs.",
                "Name the directory of the model that the statement is of.",
            )


def checked_program(data: bytes, digest: bytes) -> Program:
    """The program in a text that another party may have written. Raises DigestMismatchError for
    another one than `digest` names, CorruptFileError."""
    if text_digest(data) != digest:
        raise DigestMismatchError(
            "The program here is not the one that the model statement names.",
            "Derive it again with `tallystick model statement`.",
        )
    return parse_text(data)


def _no_answer(why: str) -> None:
    raise CorruptFileError(
        f"The program in the statement is not that of an answer: {why}.",
        "Derive it again with `tallystick model statement`.",
    )

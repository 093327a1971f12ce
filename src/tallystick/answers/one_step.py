"""A job of one step that a model and a request imply, and the run that its claim implies
(ANSWERS 2).

Model statement, request and what is claimed give the job and the roots of its run. Neither needs a
weight: a statement has their digests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from tallystick.answers.statement import ModelStatement, ProgramName, StepRoots
from tallystick.commit.checkpoint import run_root
from tallystick.commit.data import DataSchema, Field, data_root
from tallystick.commit.job import JobCommitment, scalars_digest
from tallystick.commit.state import (
    CHAIN_START,
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    CommitNode,
    StateRoots,
    chain_digest,
)
from tallystick.commit.tensor import DTYPES, Array, dtype_name, tensor_digest
from tallystick.errors import CorruptFileError
from tallystick.job.job import Job
from tallystick.job.parts import STEP, TRAIN, Parts, ProgramPart, Records
from tallystick.job.writing import fills_of, write_job
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.state import State


class OneStepRequest(Protocol):
    """What a job takes from any request."""

    @property
    def model(self) -> bytes: ...
    @property
    def digest(self) -> bytes: ...
    @property
    def tokens(self) -> tuple[int, ...] | None: ...
    @property
    def choices(self) -> int: ...
    @property
    def record_salt(self) -> Array: ...


class OneStepJob(ABC):
    """The job of an answer or of an encoding, which are runs of one step (ANSWERS 1.4, 1.6)."""

    statement: ModelStatement
    request: OneStepRequest
    choice: int

    # -- what a kind of job says -------------------------------------------------------------------

    @property
    @abstractmethod
    def program_name(self) -> ProgramName:
        """The program of the statement that the job has. Raises UsageError where there is none."""

    @property
    @abstractmethod
    def seed(self) -> int:
        """The job's random-number seed."""

    @property
    @abstractmethod
    def columns(self) -> dict[str, Array]:
        """The job's one record, by field."""

    @property
    @abstractmethod
    def scores(self) -> str:
        """The slot whose sum is the loss, but for its sign."""

    @abstractmethod
    def slot_types(self) -> dict[str, TensorType]:
        """The slots that the step fills."""

    @abstractmethod
    def claimed_slots(self) -> dict[str, Array]:
        """These slots in state[1], as they are claimed."""

    @property
    @abstractmethod
    def text(self) -> tuple[int, ...]:
        """Every token that the job says, in its place."""

    # -- the job -----------------------------------------------------------------------------------

    @property
    def program_digest(self) -> bytes:
        return self.statement.programs[self.program_name]

    @cached_property
    def schema(self) -> DataSchema:
        return _schema(tuple((n, a.dtype, a.shape[1:]) for n, a in self.columns.items()))

    @cached_property
    def commitment(self) -> JobCommitment:
        """The fields of the job digest (ANSWERS 2.2)."""
        root = data_root(self.schema, self.columns)
        return commitment_of(self.statement, self.program_name, self.slot_types(), root, self.seed)

    @cached_property
    def digest(self) -> bytes:
        """The job digest (COMMITMENTS 7.2)."""
        return self.commitment.digest()

    @cached_property
    def genesis(self) -> dict[str, bytes]:
        """The tensor digests of state[0], chains included."""
        return genesis_of(self.statement, self.slot_types())

    def first_slots(self) -> dict[str, Array]:
        """The slots of the answer in state[0]: zeros (ANSWERS 2.5)."""
        return zero_slots(self.slot_types())

    @property
    def claimed(self) -> dict[str, bytes]:
        """The tensor digests of state[1] as claimed, without executing anything (ANSWERS 2.8)."""
        return {**weight_digests(self.statement), **self._claimed}

    @cached_property
    def _claimed(self) -> dict[str, bytes]:
        """Those that are not weights', chains included."""
        slots = self.claimed_slots()
        own = {name: tensor_digest(array) for name, array in slots.items()}
        total = evaluate("aten.sum", slots[self.scores], contract=self.statement.contract)
        loss = np.float32(0) - np.float32(total)  # type: ignore[arg-type]
        return CommitNode(own, 0, float(loss), CHAIN_START, CHAIN_START).next_state()

    def roots(self) -> tuple[bytes, bytes]:
        """The final state root and the run root that the claim implies (ANSWERS 2.8)."""
        final = _step_roots(self.statement, self.slot_types()).states.root(self._claimed)
        return final, run_root(self.digest, [(0, self.commitment.genesis_root), (1, final)])

    # -- with the program and the weights --------------------------------------------------------

    def check_program(self, program: Program) -> None:
        """Raise CorruptFileError unless `program` has the slots and inputs of an answer of this
        model (ANSWERS 2.5): a hostile statement may name any text. What it computes is not seen
        here: whether it is the model's, deriving it again shows (`compared`)."""
        weights = {
            n: TensorType(w.header.dtype, w.header.shape) for n, w in self.statement.weights.items()
        }
        if program.state_types != {**weights, **self.slot_types()}:
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


def zero_slots(types: Mapping[str, TensorType]) -> dict[str, Array]:
    """The slots that a step fills, in state[0] (ANSWERS 2.5)."""
    return {name: np.zeros(type_.shape, DTYPES[type_.dtype]) for name, type_ in types.items()}


def genesis_of(statement: ModelStatement, types: Mapping[str, TensorType]) -> dict[str, bytes]:
    """The tensor digests of state[0] of every job whose step fills slots of these types, chains
    included."""
    own = {name: tensor_digest(array) for name, array in zero_slots(types).items()}
    chain = chain_digest(CHAIN_START)
    return {**weight_digests(statement), **own, LOSS_CHAIN_SLOT: chain, LOG_CHAIN_SLOT: chain}


def _step_roots(statement: ModelStatement, types: Mapping[str, TensorType]) -> StepRoots:
    """What the states of all answers share whose step fills slots of these types."""
    kept, key = statement.kept, tuple(types.items())
    if key not in kept:
        held, first = weight_digests(statement), genesis_of(statement, types)
        own = {name: digest for name, digest in first.items() if name not in held}
        states = StateRoots(held, own)
        kept[key] = StepRoots(states, states.root(own))
    return kept[key]


@lru_cache(64)
def _schema(fields: tuple[tuple[str, np.dtype[np.generic], tuple[int, ...]], ...]) -> DataSchema:
    """The schema of records with these fields: there is one for each program."""
    return DataSchema(tuple(Field(n, dtype_name(dtype), shape) for n, dtype, shape in fields))


def commitment_of(
    statement: ModelStatement,
    name: ProgramName,
    types: Mapping[str, TensorType],
    data: bytes,
    seed: int,
) -> JobCommitment:
    """The job of the record with the data root `data` and this seed, under the program `name` of
    the statement, which fills slots of these types (ANSWERS 2.1, 2.2)."""
    return JobCommitment(
        contract=statement.contract,
        program_digest=statement.programs[name],
        genesis_root=_step_roots(statement, types).genesis,
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


def _no_answer(why: str) -> None:
    raise CorruptFileError(
        f"The program in the statement is not that of an answer: {why}.",
        "Derive it again with `tallystick model statement`.",
    )

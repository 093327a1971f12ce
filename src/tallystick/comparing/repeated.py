"""One run as a comparison executes it again: a step's entries, and the values of an operand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tallystick.commit.tensor import Array, tensor_digest
from tallystick.comparing.steps import INPUT, OPERATOR, ExecutedOperator, OperandRecord
from tallystick.devices.device import Tensor
from tallystick.disk.regular import present
from tallystick.job.job import Job
from tallystick.program.ir import COMMIT, Node, Program, Value, split_batch
from tallystick.prover.states import RunStates
from tallystick.run.execute.nodes import NodeTracer
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import JournalContent

# Bytes of records among which those of a batch are looked for.
_MOST_SEARCHED = 256 << 20


class _SeenError(Exception):
    """Ends a step at the node in question."""


@dataclass
class Repeated:
    """A run, its records, and its states as this machine executes them again. `plays` says that a
    declared cheat takes part, at its owner's word."""

    store: RunStore
    job: Job
    journal: JournalContent
    states: RunStates
    plays: bool = False

    @property
    def follows_job(self) -> bool:
        """True if the job alone gives every step: no rounding log and no cheat takes part."""
        return not self.plays and not self.journal.logs

    @property
    def declares(self) -> bool:
        """True if the directory declares a cheat, which its owner may let play."""
        return present(self.store.override_path)

    @property
    def steps(self) -> int:
        """The steps of which the run has a record."""
        return len(self.journal.losses)

    def program(self, step: int) -> Program:
        return self.job.loose_terms.program_at(step)

    def inputs(self, step: int) -> dict[str, str]:
        """Digests of what a step reads beside the state, by names."""
        engine = self.states.at(step)
        found = {f"batch {n}": tensor_digest(a).hex() for n, a in engine.batch(step).items()}
        found |= {f"scalar {n}": float(v).hex() for n, v in engine.scalars(step).items()}
        if self.program(step).uses_rng:
            found["random key"] = str(tuple(self.job.commitment.random_key(step)))
        return found

    def reads_own_records(self, step: int) -> bool | None:
        """True if a step reads records of the job, and none more often than the job has it; None
        where the step reads none, and for data too large to be looked through."""
        batch = self._batch_read(step)
        timetable = self.job.commitment.timetable
        data = timetable.programs[timetable.at(step).program].data
        if data is None or not batch:
            return None
        columns = self.job.columns_of[data]
        if sum(column.nbytes for column in columns.values()) > _MOST_SEARCHED:
            return None
        names = sorted(batch)
        read = Counter(_records({name: batch[name] for name in names}))
        own = _records({name: columns[name] for name in names})
        return read <= Counter(record for record in own if record in read)

    def _batch_read(self, step: int) -> dict[str, Array]:
        """The fields that the operators of a step read, as they read them: a cheat that plays may
        have changed them."""
        host, program = self.states.context.device.host, self.program(step)
        parts = defaultdict[str, dict[int, Array]](dict)

        def tap(
            _: int, node: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
        ) -> None:
            for value, tensor in zip(node.inputs, inputs, strict=True):
                if value is None or tensor is None or not value.is_input:
                    continue
                given = program.inputs[value.out]
                if given.kind == "batch":
                    name, number = split_batch(given.name)
                    parts[name].setdefault(number, np.array(host(tensor), order="C"))

        self.states.look(step, tap)
        return {n: np.concatenate([found[k] for k in sorted(found)]) for n, found in parts.items()}

    def slots(self, step: int) -> dict[str, bytes]:
        """The digests of the slots of state[step], without the chains."""
        known = self.states.at(step).state.digests()
        return {n: d for n, d in known.items() if n in self.job.program.state_types}

    def traced(self, step: int) -> tuple[list[ExecutedOperator], NodeTracer]:
        """The operators of a step as executed here, the commit node left out."""
        engine = self.states.at(step)
        tracer = engine.tracer()
        losses = self.states.look(step, tracer.tap)
        engine = self.states.at(step)
        tracer.finish(*losses, engine.state, engine.chained_log)
        return entries_of(self.program(step), tracer), tracer

    def value(self, step: int, node: int, side: str, number: int) -> Array | None:
        """A tensor of a node as executed here; None where the execution does not show it."""
        host, found = self.states.context.device.host, list[Array]()
        present = [n for n, v in enumerate(self.program(step).nodes[node].inputs) if v is not None]

        def tap(
            index: int, _: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
        ) -> None:
            if index == node:
                tensor = inputs[present[number]] if side == INPUT else outputs[number]
                if tensor is not None:
                    found.append(np.array(host(tensor), order="C"))
                raise _SeenError

        with suppress(_SeenError):
            self.states.look(step, tap)
        return found[0] if found else None


def _records(columns: Mapping[str, Array]) -> Iterator[bytes]:
    """The bytes of each record."""
    for fields in zip(*columns.values(), strict=True):
        yield b"".join(np.asarray(field).tobytes() for field in fields)


def entries_of(program: Program, tracer: NodeTracer) -> list[ExecutedOperator]:
    """The entries of a step whose nodes were digested."""
    found = []
    for number, (node, record) in enumerate(zip(program.nodes, tracer.records, strict=False)):
        if node.op == COMMIT:
            break
        read = [value for value in node.inputs if value is not None]
        inputs = tuple(
            _operand(program, value, digest)
            for value, digest in zip(read, record.inputs, strict=True)
        )
        outputs = tuple(
            OperandRecord(digest.hex(), str(kind))
            for kind, digest in zip(node.out_types, record.outputs, strict=True)
        )
        found.append(
            ExecutedOperator(
                node.op, record.attributes.decode("ascii"), inputs, outputs, number=number
            )
        )
    return found


def _operand(program: Program, value: Value, digest: bytes) -> OperandRecord:
    kind = str(program.type_of(value))
    if value.is_input:
        given = program.inputs[value.out]
        return OperandRecord(digest.hex(), kind, given.kind, given.name)
    return OperandRecord(digest.hex(), kind, OPERATOR, "", value.node, value.out)

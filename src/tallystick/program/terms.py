"""The terms of a job: the part that referee, judge and statement know (PROTOCOL 1.1).

They stand beside the program, below all code that runs a job. A referee that has them, from a
directory or from a network, can decide a dispute. They hold no tensor and no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tallystick.commit.data import DataSchema
from tallystick.commit.job import STOP_SLOT, Commitment, JobCommitment, ScalarTable
from tallystick.commit.timetable import Occasion
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.types import TensorType
from tallystick.program.expand import expand
from tallystick.program.ir import Program

STOP_TYPE = TensorType("bool", ())


@dataclass(frozen=True)
class Terms:
    """A job's commitment, and the values behind its digests.

    These are the programs as their texts have them, the scalar tables, and the schemas of the data
    sets, in the order of the commitment's timetable. The caller that makes one has checked that
    they hash to the commitment's digests.
    """

    commitment: Commitment
    texts: tuple[Program, ...]
    scalars: Mapping[str, ScalarTable]
    schemas: tuple[DataSchema, ...]

    @cached_property
    def digest(self) -> bytes:
        """The job digest (COMMITMENTS 7.2, 7.6.2)."""
        return self.commitment.digest()

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """The programs as they are executed: a section once for each micro-batch (PROGRAM 6.7)."""
        given = zip(self.texts, self.commitment.timetable.programs, strict=True)
        return tuple(expand(text, entry.micro_batches) for text, entry in given)

    @property
    def program(self) -> Program:
        """The program of the first step: the only one of a job of format 1."""
        return self.programs[self.commitment.timetable.at(0).program]

    def program_at(self, step: int) -> Program:
        """The program that a step executes."""
        return self.programs[self.commitment.timetable.at(step).program]

    def schema_of(self, program: int) -> DataSchema | None:
        """The schema of the records that a program reads; None for a program without a batch."""
        data = self.commitment.timetable.programs[program].data
        return None if data is None else self.schemas[data]

    def scalar(self, name: str, step: int) -> float:
        """The value of a scalar in a step (COMMITMENTS 7.3, 7.6.5)."""
        return self._value(self.scalars[name], self.commitment.timetable.at(step))

    def scalars_at(self, step: int) -> dict[str, float]:
        """The scalars that the step's program reads, by name (COMMITMENTS 7.3, 7.6.5)."""
        at = self.commitment.timetable.at(step)
        names = self.programs[at.program].scalar_names
        return {name: self._value(self.scalars[name], at) for name in names}

    def _value(self, table: ScalarTable, at: Occasion) -> float:
        return table if isinstance(table, float) else table[self.commitment.timetable.row(at)]

    def misfit(self) -> str | None:
        """The reason why the parts do not fit; None where they fit (COMMITMENTS 7.4, 7.6.9)."""
        used: set[str] = set()
        for number, program in enumerate(self.texts):
            why = self._misfit_of(number, program)
            if why is not None:
                name = self.commitment.timetable.programs[number].name
                return why if len(self.texts) == 1 else f"{name}: {why}"
            used |= set(program.scalar_names)
        if used != set(self.scalars):
            return "the scalars are not the program's"
        if isinstance(self.commitment, JobCommitment):
            if self.schemas[0].record_size > LIMITS.record_bytes:
                return f"a record is longer than {LIMITS.record_bytes} bytes"
        elif len(self.texts) > 1 and parse_contract(self.commitment.contract).keeps_log:
            return "a contract that keeps logs has one program"
        elif self.commitment.stop_on_slot and self._slots.get(STOP_SLOT) != STOP_TYPE:
            return f"its state has no slot {STOP_SLOT} of type {STOP_TYPE}"
        return None

    @property
    def _slots(self) -> dict[str, TensorType]:
        return self.texts[0].state_types

    def _misfit_of(self, number: int, program: Program) -> str | None:
        c, entry = self.commitment, self.commitment.timetable.programs[number]
        if program.contract != c.contract:
            return "the program is written for another contract"
        if not program.next_state:
            return "its program has no next state"
        if program.state_types != self._slots:
            return "its state is not that of the other programs"
        loss = program.output_values.get("loss")
        if loss is None or program.type_of(loss) != TensorType("f32", ()):
            return "its program has no scalar f32 output `loss`"
        try:
            expand(program, entry.micro_batches)
        except UsageError as error:
            return error.message.rstrip(".")
        size = entry.rows
        schema = self.schema_of(number)
        fields = () if schema is None else schema.fields
        if program.batch_types != {f.name: TensorType(f.dtype, (size, *f.shape)) for f in fields}:
            return "the program's batch is not a batch of the data's records"
        rows = c.timetable.rows(number, c.steps)
        for name in set(program.scalar_names) & set(self.scalars):
            table = self.scalars[name]
            if not isinstance(table, float) and len(table) != rows:
                return f"the table {name} has {len(table)} values for {rows} steps"
        return None

"""The terms of a job: the part that referee, judge and statement know (PROTOCOL 1.1).

They stand beside the program, below all code that runs a job. A referee that has them, from a
directory or from a network, can decide a dispute. They hold no tensor and no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tallystick.commit.data import DataSchema
from tallystick.commit.job import JobCommitment, ScalarTable
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program


@dataclass(frozen=True)
class Terms:
    """A job's commitment, and the values behind its digests: program, scalar tables, data schema.

    The caller that makes one has checked that program and scalars hash to the commitment's digests.
    """

    commitment: JobCommitment
    program: Program
    scalars: Mapping[str, ScalarTable]
    schema: DataSchema

    @cached_property
    def digest(self) -> bytes:
        """The job digest (COMMITMENTS 7.2)."""
        return self.commitment.digest()

    def misfit(self) -> str | None:
        """The reason why the parts do not fit; None where they fit.

        They are contract, state, loss, batch and scalars (COMMITMENTS 7.4).
        """
        program, c = self.program, self.commitment
        if program.contract != c.contract:
            return "the program is written for another contract"
        if not program.next_state:
            return "its program has no next state"
        loss = program.output_values.get("loss")
        if loss is None or program.type_of(loss) != TensorType("f32", ()):
            return "its program has no scalar f32 output `loss`"
        fields = {f.name: TensorType(f.dtype, (c.batch_size, *f.shape)) for f in self.schema.fields}
        if program.batch_types != fields:
            return "the program's batch is not a batch of the data's records"
        if set(program.scalar_names) != set(self.scalars):
            return "the scalars are not the program's"
        for name, table in self.scalars.items():
            if not isinstance(table, float) and len(table) != c.steps:
                return f"the table {name} has {len(table)} values for {c.steps} steps"
        return None

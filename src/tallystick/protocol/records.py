"""The record behind an element of a batch tensor: which it is, and its proof (PROTOCOL 5.6.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.commit.data import DataSchema, Field
from tallystick.commit.job import JobCommitment
from tallystick.commit.records import PartProof, part_bytes, place_of
from tallystick.commit.stream import DataSet
from tallystick.program.ir import split_batch
from tallystick.protocol.bodies import Body, PartBody, RecordBody
from tallystick.protocol.facts import Facts
from tallystick.protocol.messages import Query
from tallystick.protocol.queries import Record, RecordPart


@dataclass(frozen=True)
class Wanted:
    """Element `element` of `field` of record `index` of a data set."""

    number: int
    data: DataSet
    schema: DataSchema
    index: int
    field: Field
    element: int

    @property
    def nbytes(self) -> int:
        """The bytes of the record, or of the part of it, that a true answer shows."""
        return part_bytes(self.schema, place_of(self.schema, self.field, self.element).part)


def wanted_record(facts: Facts, step: int, name: str, element: int) -> Wanted:
    """The value that is element `element` of the batch tensor `name` of `step` (COMMITMENTS 8.5).

    `facts` are those at `step`.
    """
    timetable = facts.job.timetable
    occasion = timetable.at(step)
    program, schema = timetable.programs[occasion.program], facts.schema
    data = timetable.data_of(occasion.program)
    assert schema is not None and data is not None and program.data is not None
    label, micro_batch = split_batch(name)
    field = next(f for f in schema.fields if f.name == label)
    place, inside = divmod(element, field.header.elements)
    place += micro_batch * program.rows
    index = timetable.record(occasion, place)
    return Wanted(program.data, data, schema, index, field, inside)


def record_query(facts: Facts, wanted: Wanted) -> Query[Any]:
    """The query for the record: kind 12 in a job of format 1, kind 16 in one of format 2."""
    if isinstance(facts.job, JobCommitment):
        return Record(wanted.index)
    part = place_of(wanted.schema, wanted.field, wanted.element).part
    return RecordPart(wanted.number, wanted.index, part)


def shown_bytes(body: Body) -> int:
    """The bytes of the record, or of the part of it, in an answer."""
    return len(body.record if isinstance(body, RecordBody) else _part(body).part)


def _part(body: Body) -> PartBody:
    assert isinstance(body, PartBody)
    return body


def record_value(wanted: Wanted, body: Body) -> np.generic:
    """The value, from the answer. Raises CounterpartyError for a proof that does not give the job's
    data root."""
    if isinstance(body, RecordBody):
        proof = PartProof(body.record, (), body.proof)
    else:
        part = _part(body)
        proof = PartProof(part.part, part.inner, part.proof)
    data = wanted.data
    return proof.value(
        wanted.schema, data.record_count, data.root, wanted.index, wanted.field, wanted.element
    )

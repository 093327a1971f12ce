"""A record's schema in a manifest: written, and read from any author."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.commit.data import DataSchema, Field
from tallystick.commit.encoding import JsonValue
from tallystick.commit.members import Members
from tallystick.commit.tensor import COMPUTED


def schema_members(schema: DataSchema) -> list[JsonValue]:
    """The fields, in their order."""
    return [{"dtype": f.dtype, "name": f.name, "shape": list(f.shape)} for f in schema.fields]


def read_schema(top: Members, items: Sequence[JsonValue], most: int) -> DataSchema:
    """The schema in an untrusted manifest, with records of at most `most` bytes. Raises
    CorruptFileError, UsageError."""
    fields = []
    for item in items:
        entry = Members(item, top.fail)
        entry.only("dtype", "name", "shape")
        shape, dtype = entry.of("shape", list), entry.of("dtype", str)
        sides = tuple(d for d in shape if type(d) is int)
        if len(sides) != len(shape) or dtype not in COMPUTED:
            entry.fail("a field of the schema is malformed")
        fields.append(Field(entry.of("name", str), dtype, sides))
    return DataSchema(tuple(fields), most)

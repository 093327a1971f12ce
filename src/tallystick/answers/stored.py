"""A model's program over weights in the types that they are stored in (NUMERICS 1.14).

Capture knows float32 alone. Here each weight of bf16 or f16 gets its own type, and the conversion
that makes float32 of it stands right behind it. Of a table of embeddings rows are taken first.
"""

from __future__ import annotations

from collections.abc import Mapping

from tallystick.numerics.types import STORED, TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Program, Value

_EMBEDDING = "aten.embedding"


def over_stored(program: Program, stored: Mapping[str, str]) -> Program:
    """`program`, which has no next state, with the slots of `stored` in these types."""
    builder = Builder(program.contract)
    inputs = []
    for spec in program.inputs:
        if spec.kind == "state":
            type_ = TensorType(stored.get(spec.name, spec.type.dtype), spec.type.shape)
            inputs.append(builder.state(spec.name, type_))
        else:
            inputs.append(builder.batch(spec.name.removeprefix("batch."), spec.type))
    made: list[list[Value]] = []

    def moved(value: Value) -> Value:
        return inputs[value.out] if value.is_input else made[value.node][value.out]

    def wide(value: Value) -> Value:
        if builder.type_of(value).dtype not in STORED:
            return value
        return builder.one("aten._to_copy", [value], dtype="f32")

    for node in program.nodes:
        operands = [None if v is None else moved(v) for v in node.inputs]
        table = operands[0] if node.op == _EMBEDDING else None
        if table is not None and builder.type_of(table).dtype in STORED:
            index, (out,) = operands[1], node.out_types
            assert index is not None
            count = builder.type_of(index).numel
            flat = builder.one("aten.view", [index], size=(count,))
            rows = builder.one("aten.index_select", [table, flat], dim=0)
            made.append([builder.one("aten.view", [wide(rows)], size=out.shape)])
        else:
            given = [None if v is None else wide(v) for v in operands]
            made.append(builder.emit(node.op, given, **node.attrs))
    return builder.finish({name: wide(moved(value)) for name, value in program.outputs})

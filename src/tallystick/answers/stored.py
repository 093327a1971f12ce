"""A model's program over weights as they are stored: in types of NUMERICS 1.14, or in blocks
(NUMERICS 19).

Capture knows float32 alone. Here each weight of bf16, f16 or a format of blocks gets its own type,
and the conversion that makes float32 of it stands right behind it. Of a table of embeddings rows
are taken first, and of experts in blocks one's matrix. What lies transposed in a file is turned
after the conversion; what a file has already added one to is read where one would be added.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from tallystick.errors import RefusedModelError
from tallystick.numerics.operators.quantised import BLOCKS, DEQUANTIZE
from tallystick.numerics.types import STORED, TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Node, Program, Value

_EMBEDDING = "aten.embedding"
_SLICE, _VIEW = "aten.slice", "aten.view"
_ADD = "aten.add.Scalar"


def stored_shape(kind: str, shape: tuple[int, ...], turned: bool = False) -> tuple[int, ...]:
    """The shape of the slot of a parameter of `shape` that is stored as `kind`; ANSWERS 12.3."""
    if turned:
        shape = shape[::-1]
    if kind not in BLOCKS:
        return shape
    block = BLOCKS[kind]
    if not shape or shape[-1] % block.elements:
        raise RefusedModelError(
            f"Rows of {list(shape)} do not consist of whole blocks of {kind}.",
            "Use the file that belongs to this model.",
        )
    return (*shape[:-1], shape[-1] // block.elements * block.size)


def over_stored(
    program: Program,
    stored: Mapping[str, str],
    turned: Container[str] = (),
    plus_one: Container[str] = (),
) -> Program:
    """`program`, which has no next state, with the slots of `stored` in these types or formats,
    those of `turned` transposed, and those of `plus_one` greater by one. Raises RefusedModelError
    for one of them that is read otherwise than plus one."""
    builder = Builder(program.contract)
    inputs: list[Value] = []
    kinds: dict[Value, tuple[str, bool]] = {}
    for spec in program.inputs:
        if spec.kind == "state":
            kind, turns = stored.get(spec.name, spec.type.dtype), spec.name in turned
            dtype = "u8" if kind in BLOCKS else kind
            shape = stored_shape(kind, spec.type.shape, turns)
            value = builder.state(spec.name, TensorType(dtype, shape))
            kinds[value] = (kind, turns)
        else:
            value = builder.batch(spec.name.removeprefix("batch."), spec.type)
        inputs.append(value)
    made: list[list[Value]] = []

    def moved(value: Value) -> Value:
        return inputs[value.out] if value.is_input else made[value.node][value.out]

    def converted(value: Value, kind: str) -> Value:
        if kind in BLOCKS:
            return builder.one(DEQUANTIZE, [value], format=kind)
        return builder.one("aten._to_copy", [value], dtype="f32") if kind in STORED else value

    def wide(value: Value) -> Value:
        kind, turns = kinds.get(value, ("", False))
        found = converted(value, kind)
        return builder.one("aten.permute", [found], dims=(1, 0)) if turns else found

    def of_bytes(node: Node, given: Value | None) -> Value | None:
        """The node's value in blocks, where it takes whole matrices of several in blocks."""
        kind, turns = ("", False) if given is None else kinds.get(given, ("", False))
        if given is None or kind not in BLOCKS or turns:
            return None
        shape, (out,) = builder.type_of(given).shape, node.out_types
        if node.op == _SLICE and node.attrs["dim"] == 0 and len(shape) == 3:
            found = builder.one(_SLICE, [given], **node.attrs)
        elif node.op == _VIEW and len(shape) == 3 and (1, *out.shape[:-1]) == shape[:-1]:
            found = builder.one(_VIEW, [given], size=shape[1:])
        else:
            return None
        kinds[found] = (kind, False)
        return found

    for node in program.nodes:
        operands = [None if v is None else moved(v) for v in node.inputs]
        read = [
            name
            for v in node.inputs
            if v is not None and v.is_input and (name := program.inputs[v.out].name) in plus_one
        ]
        if read and not _adds_one(node):
            raise RefusedModelError(
                f"The file stores {read[0]} plus one, which transformers reads differently.",
                "Use the model's directory, as save_pretrained wrote it.",
            )
        if read:
            assert operands[0] is not None
            made.append([wide(operands[0])])
            continue
        table = operands[0] if node.op == _EMBEDDING else None
        kind, turns = ("", False) if table is None else kinds.get(table, ("", False))
        if table is not None and not turns and (kind in BLOCKS or kind in STORED):
            index, (out,) = operands[1], node.out_types
            assert index is not None
            count = builder.type_of(index).numel
            flat = builder.one(_VIEW, [index], size=(count,))
            rows = builder.one("aten.index_select", [table, flat], dim=0)
            made.append([builder.one(_VIEW, [converted(rows, kind)], size=out.shape)])
        elif operands and (taken := of_bytes(node, operands[0])) is not None:
            made.append([taken])
        else:
            given = [None if v is None else wide(v) for v in operands]
            made.append(builder.emit(node.op, given, **node.attrs))
    return builder.finish({name: wide(moved(value)) for name, value in program.outputs})


def _adds_one(node: Node) -> bool:
    return node.op == _ADD and node.attrs["other"] == 1 and node.attrs["alpha"] == 1

"""The flat program of a text with micro-batches: by the text alone, and by the package (PROGRAM
6.7)."""

from __future__ import annotations

import re

import pytest
from format_two import micro_step
from reference.judge.encoding import RefusedError
from reference.judge.programs import expand, read_program

from tallystick.errors import UsageError
from tallystick.numerics.contracts import resolve_contract
from tallystick.program import expand as package
from tallystick.program import ir
from tallystick.program.text import attribute_text, parse_text

TEXT = micro_step(resolve_contract("ordered/1"), 2).text().encode()


def _operand(flat: ir.Program, value: ir.Value | None) -> object:
    if value is None:
        return None
    if value.is_input:
        return "input", flat.inputs[value.out].name
    return "node", (value.node, value.out)


def _types(types: object) -> list[tuple[str, tuple[int, ...]]]:
    return [(t.dtype, t.shape) for t in types]  # type: ignore[attr-defined]


@pytest.mark.parametrize("v", [1, 2, 3, 7, 255, 256, 257, 511, 512, 600])
def test_every_node_is_the_same(v: int) -> None:
    mine, theirs = expand(read_program(TEXT), v), package.expand(parse_text(TEXT), v)
    assert len(mine.nodes) == len(theirs.nodes)
    for number, (a, b) in enumerate(zip(mine.nodes, theirs.nodes, strict=True)):
        commits = b.op == ir.COMMIT
        operands = a.operands[:-3] if commits else a.operands
        assert a.op == b.op, number
        assert operands == [_operand(theirs, value) for value in b.inputs], number
        assert a.types == _types(b.out_types), number
        assert commits or a.attr_bytes == attribute_text(b.attrs).encode(), number
    loss = theirs.output_values["loss"]
    assert mine.nodes[-1].operands[-3] == _operand(theirs, loss)
    named = {n: t for n, (_, t) in mine.inputs.items() if not n.startswith("chain.")}
    assert named == {s.name: (s.type.dtype, s.type.shape) for s in theirs.inputs}
    assert mine.digest == theirs.digest()


def test_what_has_too_many_nodes_is_no_program() -> None:
    """6.8: with more nodes in the section, a million are too few for 2^16 micro-batches."""
    many = _longer(TEXT.decode(), 20)
    for v in (1 << 16, 50_000):
        with pytest.raises(RefusedError):
            expand(read_program(many), v)
        with pytest.raises(UsageError):
            package.expand(parse_text(many), v)


def _longer(text: str, more: int) -> bytes:
    """The text with so many nodes in front of its section, which nothing reads."""
    moved = re.sub(r"%(\d+)", lambda m: f"%{int(m[1]) + more}", text)
    new = "".join(f"%{i} = aten.square(@batch.x) : f32[2,3]\n" for i in range(more))
    moved = moved.replace(f"%{more} = aten.sum", f"{new}%{more} = aten.sum", 1)
    return moved.replace("micro 10", f"micro {10 + more}").encode()

"""The guess of a log's size comes from what the opening rules add up (NUMERICS 13.3)."""

from __future__ import annotations

import pytest

from tallystick.contracts.replay.sections import sections_of
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Program, Value
from tallystick.run.logs.training import step_log_bytes


def program_of(op: str, inner: int, outer: int = 64) -> Program:
    b = Builder(find_contract("replay/1").text)
    x = b.batch("x", TensorType("f32", (outer, inner)))
    made: list[Value] = []
    if op == "aten.mm":
        made = b.emit(op, [x, b.batch("w", TensorType("f32", (inner, outer)))])
    else:
        made = b.emit(op, [x], dim=(1,), keepdim=False)
    return b.finish({"y": made[0]})


def estimate(program: Program) -> int:
    return step_log_bytes(program, sections_of(program, find_contract(program.contract)))


@pytest.mark.parametrize("op", ["aten.mm", "aten.mean.dim"])
def test_more_terms_make_a_larger_log(op: str) -> None:
    sizes = [estimate(program_of(op, inner)) for inner in (1, 20_000, 200_000)]
    assert sizes == sorted(set(sizes))


def test_an_empty_output_has_no_entries() -> None:
    assert estimate(program_of("aten.mm", 7, 0)) < estimate(program_of("aten.mm", 7, 1))

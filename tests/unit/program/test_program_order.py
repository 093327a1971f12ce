"""The order of need: one text for one graph, however a trace orders it (program/canonical.py)."""

from __future__ import annotations

from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import in_order_of_need
from tallystick.program.check import check_program
from tallystick.program.ir import Program

F32 = TensorType("f32", (3,))


def written(order: str, depth: int = 3) -> Program:
    """Chains of `depth` nodes over two inputs, in this order of writing, and a sum of both."""
    b = Builder()
    ends = {"a": b.batch("a", F32), "b": b.batch("b", F32)}
    for chain in order:
        for _ in range(depth):
            op = "aten.exp" if chain == "a" else "aten.neg"
            ends[chain] = b.one(op, [ends[chain]])
    b.one("aten.neg", [ends["a"]])  # what no output needs
    total = b.one("aten.add.Tensor", [ends["a"], ends["b"]], alpha=1.0)
    return b.finish(
        {"other": ends["b"], "same": ends["b"], "total": total, "x": b.input("batch.a")}
    )


def test_the_order_follows_from_the_graph() -> None:
    first, second = written("ab"), written("ba")
    assert first.text() != second.text()
    placed = in_order_of_need(first)
    assert placed.text() == in_order_of_need(second).text()
    check_program(placed)
    # `other` is the first output, so its chain comes first.
    assert [n.op for n in placed.nodes] == [*["aten.neg"] * 3, *["aten.exp"] * 3, "aten.add.Tensor"]
    assert in_order_of_need(placed) == placed


def test_long_chains_need_no_recursion() -> None:
    assert len(in_order_of_need(written("ab", 3000)).nodes) == 6001

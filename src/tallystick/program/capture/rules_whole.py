"""Rules for integers: division (NUMERICS 10.10)."""

from __future__ import annotations

from torch import fx

from tallystick.program.capture.lower import Arguments, Lowerer, Results, lowering
from tallystick.program.ir import Value


@lowering("aten.floor_divide", "aten.floor_divide.Scalar")
def _floor_divide(lo: Lowerer, node: fx.Node, a: Arguments) -> Results:
    """Of floats: rules_round's composition."""
    if lo.result(node).dtype != "i64":
        return lo.composed(node)
    left, right = a["self"], a["other"]
    whole: list[Value] = [
        lo.cast(lo.value(v), "i64") if isinstance(v, fx.Node) else lo.full((), v, "i64")
        for v in (left, right)
    ]
    return lo.emit("aten.floor_divide", *whole)

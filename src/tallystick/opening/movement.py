"""The opening rule of joining (NUMERICS 9), which takes any number of operands."""

from __future__ import annotations

from typing import Any

from tallystick.numerics.operators.common import axis_of, integer
from tallystick.opening.pointwise import coordinates, one, position
from tallystick.opening.quantity import Local, Needs, Quantity, Site, Source, opening


@opening("aten.cat")
def _cat(site: Site) -> Quantity:
    at = coordinates(site.element, site.outputs[0].shape)
    axis = axis_of(site.op, integer(site.attrs, "dim"), len(at))
    operand, before = 0, 0
    while at[axis] >= before + site.type_of(operand).shape[axis]:
        before += site.type_of(operand).shape[axis]
        operand += 1
    from_ = (*at[:axis], at[axis] - before, *at[axis + 1 :])
    flat = position(from_, site.type_of(operand).shape)

    def compute(source: Source, _: Needs) -> Any:
        return one(source, operand, flat)[0]

    return Local("out", site.outputs[0].dtype, compute)

"""The opening rule of each operator: it follows from what its declaration has."""

from __future__ import annotations

from tallystick.numerics.registry import all_ops
from tallystick.opening.parts import parts_rule
from tallystick.opening.pointwise import pointwise_rule
from tallystick.opening.quantity import opening

for _name, _spec in all_ops().items():
    opening(_name)(parts_rule if _spec.parts else pointwise_rule)

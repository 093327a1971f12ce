"""The opening rule of each operator: it follows from what its declaration has.

An operator with parts has the rule of its parts (parts.py). One with forms needs one element
of each operand: elementwise operators, gelu, and the optimizers' updates (NUMERICS 6, 8.5, 10, 11).
That rule computes the form's values on one element, and calls no kernel.
"""

from __future__ import annotations

from typing import Any

from tallystick.kernels.elements import element_values
from tallystick.kernels.loops import names_of
from tallystick.numerics.registry import OpSpec, all_ops, lookup
from tallystick.opening.parts import parts_rule
from tallystick.opening.places import operand_of
from tallystick.opening.quantity import Local, Needs, Quantity, Site, Source, opening


def pointwise_rule(site: Site) -> Quantity:
    """The element of an operator with forms."""
    spec = lookup(site.op)

    def compute(source: Source, _: Needs) -> Any:
        given, sizes = operands_of(site, source), sizes_of(site, spec)
        made = element_values(spec, site.attrs, given, sizes)  # raises RefusedOperandsError
        return made[site.out].reshape(-1)[0]

    return Local("out", site.outputs[site.out].dtype, compute)


def operands_of(site: Site, source: Source) -> list[Any]:
    """The operands' elements that go into the site's element; None for an absent operand."""
    return [
        None if type_ is None else operand_of(site, source, k, type_)
        for k, type_ in enumerate(site.inputs)
    ]


def sizes_of(site: Site, spec: OpSpec) -> dict[str, int]:
    """The whole operands' numbers of elements, by name."""
    return {
        name: type_.numel
        for name, type_ in zip(names_of(spec), site.inputs, strict=False)
        if type_ is not None
    }


for _name, _spec in all_ops().items():
    opening(_name)(parts_rule if _spec.parts else pointwise_rule)

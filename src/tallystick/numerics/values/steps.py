"""An optimizer's step: a form most of whose leaves are one number for every element.

Elements are the form's operands on binary32. Every other operand and every attribute is one number,
and what is made of such alone is a *factor*: it is computed once, before the loop. The renderer
(native/tools/render_optimizer.py) writes the steps' text, and a GPU's launch follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.numerics.registry import OpSpec
from tallystick.numerics.values.forms import Form
from tallystick.numerics.values.graph import Condition, Value, values_below


@dataclass(frozen=True)
class Step:
    """`elements`, `scalars` (operands of one number) and `attributes` are leaves in the order of
    the kernel's parameters; a kernel is one way to decide `conditions`."""

    name: str
    outputs: tuple[Value, ...]
    elements: tuple[Value, ...]
    scalars: tuple[Value, ...]
    attributes: tuple[Value, ...]
    factors: tuple[Value, ...]
    conditions: tuple[Condition, ...]

    def kernel(self, holds: Sequence[bool]) -> str:
        """The name of the kernel for which these conditions hold."""
        names = map(condition_name, self.conditions)
        return "_".join([self.name, *(name for name, it in zip(names, holds, strict=True) if it)])


def condition_name(condition: Condition) -> str:
    """As the kernels' text has it: `has_coefficient`, `weight_decay_is_0`, `nesterov`."""
    if condition.test == "has":
        return f"has_{condition.name}"
    value = condition.value
    return condition.name if value is True else f"{condition.name}_is_{value:g}"


def step_of(spec: OpSpec, form: Form) -> Step:
    """The step that a form of an optimizer is."""
    below = values_below(form.outputs)
    places = {name.rstrip("?"): k for k, name in enumerate(spec.operands)}
    operands = sorted((x for x in below if x.kind == "operand"), key=lambda x: places[x.name])
    elements = [x for x in operands if x.dtype == "f32" and x.name in form.operands]
    factors: dict[int, Value] = {}

    def find(value: Value) -> None:
        own = values_below([value])
        if any(x.kind == "case" or x in elements for x in own):
            for part in value.of:
                find(part)
        elif value.kind != "constant":
            factors[id(value)] = value

    for output in form.outputs:
        find(output)
    name = spec.name.split(".")[1] + ("" if form.when is None else f"_{condition_name(form.when)}")
    return Step(
        name,
        form.outputs,
        tuple(elements),
        tuple(x for x in operands if x not in elements),
        tuple(x for x in below if x.kind == "attribute"),
        tuple(factors.values()),
        tuple(dict.fromkeys(x.condition for x in below if x.condition is not None)),
    )

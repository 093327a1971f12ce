"""The forms of an operator: what it computes on operands of certain dtypes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tallystick.numerics.types import Attrs
from tallystick.numerics.values.graph import (
    PRIMITIVES,
    Condition,
    Expr,
    operand,
    resolved,
    values_below,
)


@dataclass(frozen=True)
class Form:
    """The values of one element of each output, from the elements of operands of `dtypes`.

    `operands` are the operands' names; `when` holds of the attributes of a call that has this form.
    A call is refused where the value `refused` (a bool) holds for an element, and `why` says so.
    """

    operands: tuple[str, ...]
    dtypes: tuple[str, ...]
    outputs: tuple[Expr, ...]
    when: Condition | None = None
    refused: Expr | None = None
    why: str = ""

    def resolved(self, attrs: Attrs, given: frozenset[str]) -> tuple[Expr, ...]:
        """The outputs for one call's attributes; `given` names operands and attributes there."""
        return resolved(self.outputs, lambda condition: condition.holds(attrs, given))

    @property
    def rounds(self) -> bool:
        """True if a value of f32 may be rounded."""
        return any(rounds(value) for value in values_below(self.outputs))

    @cached_property
    def reads_size(self) -> bool:
        """True if a value depends on a whole operand's number of elements."""
        return any(value.kind == "size" for value in values_below(self.outputs))


def rounds(value: Expr) -> bool:
    """True if binary32 need not hold this value exactly, whatever it is made of."""
    if value.kind == "convert":
        return value.dtype == "f32" and value.of[0].dtype in ("i64", "f64")
    rule = PRIMITIVES.get(value.kind)
    return rule is not None and rule.rounds and value.dtype == "f32"


Made = Expr | Sequence[Expr]


def forms(
    make: Callable[..., Made],
    *dtypes: str | tuple[str, ...],
    when: Condition | None = None,
    refused: Callable[..., Expr] | None = None,
    why: str = "",
) -> tuple[Form, ...]:
    """The forms that `make` builds, one for each of `dtypes`: one dtype for all operands, or one
    for each. The operands are named as make's parameters are."""
    names = tuple(inspect.signature(make).parameters)
    found = []
    for kind in dtypes:
        each = (kind,) * len(names) if isinstance(kind, str) else kind
        elements = [operand(name, dtype) for name, dtype in zip(names, each, strict=True)]
        made = make(*elements)
        outputs = (made,) if isinstance(made, Expr) else tuple(made)
        bad = None if refused is None else refused(*elements)
        found.append(Form(names, each, outputs, when, bad, why))
    return tuple(found)


def form_of(
    found: Sequence[Form], dtypes: Sequence[str | None], attrs: Mapping[str, object]
) -> Form | None:
    """The form of a call with operands of `dtypes` (None: absent), if one is written down."""
    for form in found:
        if form.when is None or form.when.holds(dict(attrs), frozenset(attrs)):  # type: ignore[arg-type]
            pairs = zip(dtypes, form.dtypes, strict=False)
            if all(one is None or one == other for one, other in pairs):
                return form
    return None

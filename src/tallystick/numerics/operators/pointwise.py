"""Declares operators whose whole meaning is a value: their type rule follows from their forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    Result,
    Types,
    broadcast,
    check_dtype,
    check_shape,
    constant,
    describe,
    number,
    operands,
    same_dtype,
)
from tallystick.numerics.registry import TypeRule, operator
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.forms import Form, form_of
from tallystick.numerics.values.graph import values_below

# Raises UsageError for attributes that fit no call.
Check = Callable[[str, Attrs], None]


def pointwise(
    name: str,
    forms: Sequence[Form],
    *,
    clause: str,
    attrs: dict[str, Any] | None = None,
    op_class: str = "elementwise",
    one_shape: bool = False,
    check: Check | None = None,
    uncaptured: str = "",
) -> None:
    """Declare operator `name` by its forms. Operands broadcast (NUMERICS 10.1), unless they must be
    of `one_shape`. `check` looks at the attributes first."""
    operator(
        name,
        clause=clause,
        operands=forms[0].operands,
        attrs=attrs or {},
        op_class=op_class,
        is_exact=_is_exact(forms),
        forms=tuple(forms),
        uncaptured=uncaptured,
    )(_rule(forms, one_shape, check))


def _is_exact(forms: Sequence[Form]) -> bool:
    """True if it makes binary32 numbers, and rounds none (NUMERICS 14.9)."""
    makes = any(value.dtype == "f32" for form in forms for value in form.outputs)
    return makes and not any(form.rounds for form in forms)


def _rule(forms: Sequence[Form], one_shape: bool, check: Check | None) -> TypeRule:
    count = len(forms[0].operands)
    is_one_dtype = all(len(set(form.dtypes)) == 1 for form in forms)
    allowed = [tuple(dict.fromkeys(form.dtypes[k] for form in forms)) for k in range(count)]

    def rule(op: str, attrs: Attrs, inputs: Types) -> Result:
        types = operands(op, inputs, count, stored=True)  # its forms say which
        if check is not None:
            check(op, attrs)
        if is_one_dtype:
            same_dtype(op, types)
        for t, dtypes in zip(types, allowed, strict=True):
            check_dtype(op, t, dtypes)
        if one_shape:
            for t in types[1:]:
                check_shape(op, "the second operand", t, types[0].shape)
        form = form_of(forms, [t.dtype for t in types], attrs)
        if form is None:
            given = ", ".join(f"{k}={v}" for k, v in attrs.items())
            raise UsageError(f"{op}: is not defined on {describe(inputs)} with {given}.")
        outputs = form.resolved(attrs, frozenset((*attrs, *form.operands)))
        for value in values_below(outputs):
            if value.kind == "attribute":
                constant(op, value.name, number(attrs, value.name), value.dtype)
        return tuple(TensorType(value.dtype, broadcast(op, types)) for value in outputs)

    return rule

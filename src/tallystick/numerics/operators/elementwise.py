"""Operators whose whole meaning is a value, so that their type rule follows from their forms:
elementary functions, arithmetic, comparisons, logic, activations, conversions (NUMERICS 5, 6.7 to
6.11, 8.5, 10).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tallystick.errors import UsageError
from tallystick.numerics.operators.common import (
    ANY,
    DTYPE,
    FLOAT,
    NUMBERS,
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
    text,
)
from tallystick.numerics.registry import AttrSpec, TypeRule, operator
from tallystick.numerics.types import Attrs, TensorType
from tallystick.numerics.values.forms import Form, form_of, forms
from tallystick.numerics.values.graph import FUNCTIONS as FUNCTIONS
from tallystick.numerics.values.graph import (
    Expr,
    attribute,
    binary32,
    case,
    convert,
    fma,
    function,
    has,
    is_,
    primitive,
    select,
    values_below,
)

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


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OTHER = {"other": FLOAT}
_ALPHA = {"alpha": AttrSpec("float", 1.0)}


# --- correctly rounded elementary functions, and powers (5, 10.6) ---------------------------------
for _name in FUNCTIONS:
    pointwise(f"aten.{_name}", forms(partial(function, _name), "f32"), clause="5")


def _pow(x: Expr) -> Expr:
    """Some exponents are plain arithmetic; 1 is x itself, but for a NaN."""
    found = primitive("pow", x, attribute("exponent", x))
    plain = {
        1.0: x,
        2.0: x * x,
        3.0: (x * x) * x,
        0.5: primitive("sqrt", x),
        -0.5: function("rsqrt", x),
        -1.0: 1.0 / x,
    }
    for exponent, value in plain.items():
        found = case(is_("exponent", exponent), value, found)
    return found


pointwise("aten.pow.Tensor_Scalar", forms(_pow, "f32"), clause="10.6", attrs={"exponent": FLOAT})


# --- the others -----------------------------------------------------------------------------------
def _pair(
    name: str,
    make: Callable[[Expr, Expr], Expr],
    *dtypes: str,
    clause: str,
    attrs: dict[str, AttrSpec] | None = None,
) -> None:
    """`name` of two tensors, and of a tensor and the attribute `other` (10.1)."""

    def scalar(a: Expr) -> Expr:
        return make(a, attribute("other", a))

    shared = attrs or {}
    pointwise(f"{name}.Tensor", forms(_two(make), *dtypes), clause=clause, attrs=shared)
    pointwise(f"{name}.Scalar", forms(scalar, *dtypes), clause=clause, attrs={**_OTHER, **shared})


def _two(make: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    return lambda a, b: make(a, b)


def _one(make: Callable[[Expr], Expr]) -> tuple[Form, ...]:
    return forms(lambda x: make(x), "f32")


# --- arithmetic (10.2, 10.8, 10.10) ---------------------------------------------------------------
def _add(a: Expr, b: Expr) -> Expr:
    alpha = attribute("alpha", a)
    if a.dtype == "i64":
        return a + alpha * b
    return case(is_("alpha", 1.0), a + b, fma(alpha, b, a))  # one rounding


def _sub(a: Expr, b: Expr) -> Expr:
    alpha = attribute("alpha", a)
    if a.dtype == "i64":
        return a - alpha * b
    return case(is_("alpha", 1.0), a - b, fma(-alpha, b, a))


_pair("aten.add", _add, *NUMBERS, clause="10.2", attrs=_ALPHA)
_pair("aten.sub", _sub, *NUMBERS, clause="10.2", attrs=_ALPHA)
_pair("aten.mul", lambda a, b: a * b, *NUMBERS, clause="10.2")
_pair("aten.div", lambda a, b: a / b, "f32", clause="10.2")
pointwise(
    "aten.floor_divide",
    forms(
        lambda a, b: primitive("floor_divide", a, b),
        "i64",
        refused=lambda _, b: primitive("eq", b, 0),
        why="a divisor is 0",
    ),
    clause="10.10",
)

# --- one operand (6.11, 10.3) ---------------------------------------------------------------------
pointwise("aten.neg", _one(lambda x: -x), clause="10.3")
pointwise("aten.abs", _one(partial(primitive, "abs")), clause="10.3")
pointwise("aten.reciprocal", _one(lambda x: 1.0 / x), clause="10.3")
pointwise("aten.sqrt", _one(partial(primitive, "sqrt")), clause="10.3")
pointwise("aten.square", _one(lambda x: x * x), clause="10.3")
# A NaN is kept because it is not <= 0, and -0 becomes +0.
pointwise("aten.relu", _one(lambda x: select(x <= 0.0, 0.0, x)), clause="6.11")
pointwise("aten.silu", _one(lambda x: x * function("sigmoid", x)), clause="6.11")
pointwise(
    "aten.leaky_relu",
    _one(lambda x: select(x > 0.0, x, x * attribute("negative_slope", x))),
    clause="6.11",
    attrs={"negative_slope": AttrSpec("float", 0.01)},
)

# --- extremes (10.4) ------------------------------------------------------------------------------
for _name, _kind in (("maximum", "max"), ("minimum", "min")):
    pointwise(f"aten.{_name}", forms(_two(partial(primitive, _kind)), *NUMBERS), clause="10.4")


def _clamp(x: Expr) -> Expr:
    """Absent bounds are skipped."""
    low, high = attribute("min", x), attribute("max", x)
    raised = primitive("max", x, low)
    both = primitive("min", raised, high)
    return case(has("min"), case(has("max"), both, raised), primitive("min", x, high))


def _bounded(op: str, attrs: Attrs) -> None:
    if not {"min", "max"} & set(attrs):
        raise UsageError(f"{op}: needs min, max or both.")


_BOUND = AttrSpec("float", required=False)
pointwise(
    "aten.clamp",
    forms(_clamp, *NUMBERS),
    clause="10.4",
    attrs={"min": _BOUND, "max": _BOUND},
    check=_bounded,
)

# --- comparisons, logic, bits of integers (1.10, 10.5, 10.11) -------------------------------------
for _name in COMPARISONS:
    _pair(f"aten.{_name}", partial(primitive, _name), *(d for d in ANY if d != "f64"),
          clause="10.5")  # fmt: skip
for _name, _kind, _dtypes, _clause in (
    ("logical_and", "and", ("bool",), "10.5"),
    ("logical_or", "or", ("bool",), "10.5"),
    ("bitwise_and.Tensor", "and", ("bool", "i64"), "10.5"),  # on i64: 10.11
    ("bitwise_or.Tensor", "or", ("bool", "i64"), "10.5"),
    ("bitwise_xor.Tensor", "xor", ("i64",), "10.11"),
    ("bitwise_left_shift.Tensor", "left_shift", ("i64",), "10.11"),
    ("bitwise_right_shift.Tensor", "right_shift", ("i64",), "10.11"),
):
    pointwise(f"aten.{_name}", forms(_two(partial(primitive, _kind)), *_dtypes), clause=_clause)
_not: Callable[[Expr], Expr] = partial(primitive, "not")
pointwise("aten.logical_not", forms(lambda x: _not(x), "bool"), clause="10.5")
pointwise("aten.bitwise_not", forms(lambda x: _not(x), "bool", "i64"), clause="10.5")


# --- gradients of activations (6.11) --------------------------------------------------------------
def _silu_backward(grad: Expr, x: Expr) -> Expr:
    s = function("sigmoid", x)
    return grad * (s * fma(x, 1.0 - s, 1.0))


def _tanh_backward(grad: Expr, x: Expr) -> Expr:
    """`x` is tanh's result, as is the next one's sigmoid's."""
    return grad * fma(-x, x, 1.0)


def _sigmoid_backward(grad: Expr, x: Expr) -> Expr:
    return grad * (x * (1.0 - x))


def _threshold_backward(grad: Expr, x: Expr) -> Expr:
    return select(x <= attribute("threshold", x), 0.0, grad)


for _name, _make in (
    ("silu", _silu_backward),
    ("tanh", _tanh_backward),
    ("sigmoid", _sigmoid_backward),
):
    pointwise(f"aten.{_name}_backward", forms(_make, "f32"), clause="6.11", one_shape=True)
pointwise(
    "aten.threshold_backward",
    forms(_threshold_backward, "f32"),
    clause="6.11",
    attrs={"threshold": AttrSpec("float", 0.0)},
    one_shape=True,
)

# --- conversions (10.7) ---------------------------------------------------------------------------
_CONVERSIONS = (
    ("i64", "f32"),
    ("bool", "f32"),
    ("bool", "i64"),
    ("f32", "i64"),
    ("f32", "bool"),
    ("i64", "bool"),
    ("i32", "i64"),
    ("u8", "i64"),
    ("i64", "i32"),
    ("i64", "u8"),
    ("bf16", "f32"),
    ("f16", "f32"),
)
_LIMIT = 2.0**63  # exact in binary32; every value below it in magnitude fits


def _outside(x: Expr) -> Expr:
    """A NaN, or out of an i64's range."""
    inside = primitive("and", primitive("ge", x, -_LIMIT), primitive("lt", x, _LIMIT))
    return primitive("not", inside)


def _converted(source: str, target: str) -> tuple[Form, ...]:
    checked = (source, target) == ("f32", "i64")
    return forms(
        lambda x: convert(x, target),
        source,
        when=is_("dtype", target),
        refused=_outside if checked else None,
        why="a NaN or out-of-range value has no 64-bit integer" if checked else "",
    )


pointwise(
    "aten._to_copy",
    [form for pair in _CONVERSIONS for form in _converted(*pair)],
    clause="10.7",
    attrs={"dtype": DTYPE},
)

# --- dropout's scaling (8.5) ----------------------------------------------------------------------
pointwise(
    "tallystick.mask_scale",
    forms(lambda x, mask: select(mask, x * attribute("scale", x), 0.0), ("f32", "bool")),
    clause="8.5",
    attrs={"scale": FLOAT},
    one_shape=True,
)


# --- gelu and its gradient (6.7 to 6.10) ----------------------------------------------------------
_CUBIC = 0.044715  # its published decimal is the real number, here and times three
_C1 = binary32(0x3F3504F3, math.sqrt(0.5))
_C2 = binary32(0x3ECC422A, 1 / math.sqrt(2 * math.pi))
_C3 = binary32(0x3F4C422A, math.sqrt(2 / math.pi))
_C4 = binary32(0x3D372713, _CUBIC)
_C5 = binary32(0x3E095D4F, 3 * _CUBIC)
_TANH = is_("approximate", "tanh")


def _inner(x: Expr) -> Expr:
    return _C3 * fma((x * x) * x, _C4, x)


def _gelu(x: Expr) -> Expr:
    by_tanh = (x * 0.5) * (1.0 + function("tanh", _inner(x)))
    by_erf = (x * 0.5) * (1.0 + function("erf", x * _C1))
    return case(_TANH, by_tanh, by_erf)


def _gelu_backward(grad: Expr, x: Expr) -> Expr:
    c = 0.5 * (1.0 + function("erf", x * _C1))
    by_erf = grad * fma(x, function("exp", (x * x) * -0.5) * _C2, c)
    t = function("tanh", _inner(x))
    v = _C3 * fma(x * x, _C5, 1.0)
    by_tanh = grad * (0.5 * (1.0 + t) + ((0.5 * x) * fma(-t, t, 1.0)) * v)
    return case(_TANH, by_tanh, by_erf)


def _known(op: str, attrs: Attrs) -> None:
    approximate = text(attrs, "approximate")
    if approximate not in ("none", "tanh"):
        raise UsageError(f"{op}: approximate must be none or tanh, got {approximate!r}.")


for _name, _clause, _gelus in (
    ("gelu", "6.7, 6.9", _gelu),
    ("gelu_backward", "6.8, 6.10", _gelu_backward),
):
    pointwise(
        f"aten.{_name}",
        forms(_gelus, "f32"),
        clause=_clause,
        attrs={"approximate": AttrSpec("str", "none")},
        op_class="composite",
        one_shape=True,
        check=_known,
    )

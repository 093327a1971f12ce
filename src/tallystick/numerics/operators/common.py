"""Shared by declarations: attribute access, operand checks, broadcasting, rounding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tallystick.errors import UsageError
from tallystick.numerics.registry import AttrSpec, TypeRule, operator
from tallystick.numerics.types import COMPUTED, DTYPES, STORED, Attrs, TensorType
from tallystick.numerics.values.positions import Part

Types = tuple[TensorType | None, ...]
Result = tuple[TensorType, ...]
Declares = Callable[[TypeRule], TypeRule]

FLOATS = ("f32",)
NUMBERS = ("f32", "i64")
ANY = COMPUTED
_INT64 = 1 << 63


def integer(attrs: Attrs, name: str) -> int:
    """An attribute of kind int."""
    value = attrs[name]
    assert isinstance(value, int)
    return value


def number(attrs: Attrs, name: str) -> float:
    """An attribute of kind float: binary64 (NUMERICS 1.9)."""
    value = attrs[name]
    assert isinstance(value, float)
    return value


def flag(attrs: Attrs, name: str) -> bool:
    """An attribute of kind bool."""
    value = attrs[name]
    assert isinstance(value, bool)
    return value


def text(attrs: Attrs, name: str) -> str:
    """An attribute of kind str or dtype."""
    value = attrs[name]
    assert isinstance(value, str)
    return value


def integers(attrs: Attrs, name: str) -> tuple[int, ...]:
    """An attribute of kind ints."""
    value = attrs[name]
    assert isinstance(value, tuple)
    return tuple(int(v) for v in value)


def pair(op: str, attrs: Attrs, name: str, low: int, high: int) -> tuple[int, int]:
    """A spatial attribute as two numbers; ATen lets one number stand for both axes.

    Raises UsageError.
    """
    values = integers(attrs, name)
    if len(values) == 1:
        values *= 2
    if len(values) != 2 or not all(low <= v <= high for v in values):
        raise UsageError(f"{op}: {name} must be two integers of at least {low}, got {values}.")
    return values[0], values[1]


def output_mask(op: str, attrs: Attrs) -> tuple[bool, bool, bool]:
    """True for each of a gradient's three outputs that is wanted. Raises UsageError."""
    mask = attrs["output_mask"]
    if not isinstance(mask, tuple) or len(mask) != 3:
        raise UsageError(f"{op}: output_mask must have three entries, got {mask!r}.")
    return bool(mask[0]), bool(mask[1]), bool(mask[2])


def masked(op: str, attrs: Attrs, *types: TensorType) -> Result:
    """Those of a gradient's three outputs that are wanted. Raises UsageError."""
    return tuple(t for t, on in zip(types, output_mask(op, attrs), strict=True) if on)


def operands(op: str, inputs: Types, count: int, *, stored: bool = False) -> list[TensorType]:
    """Exactly `count` present operands; of bf16 and f16 only with `stored` (NUMERICS 1.14). Raises
    UsageError."""
    if len(inputs) != count or any(t is None for t in inputs):
        raise UsageError(f"{op}: takes {count} operands, got {describe(inputs)}.")
    found = [t for t in inputs if t is not None]
    if not stored and any(t.dtype in STORED for t in found):
        raise UsageError(
            f"{op}: is not defined on {describe(inputs)}.", "Convert it with aten._to_copy first."
        )
    return found


def only(op: str, inputs: Types, allowed: Sequence[str]) -> TensorType:
    """The one operand, of an allowed dtype. Raises UsageError."""
    (t,) = operands(op, inputs, 1)
    check_dtype(op, t, allowed)
    return t


def describe(inputs: Types) -> str:
    """Operand types for a message."""
    return ", ".join("none" if t is None else str(t) for t in inputs) or "none"


def check_dtype(op: str, t: TensorType, allowed: Sequence[str]) -> None:
    """Raises UsageError unless t's dtype is one of `allowed`."""
    if t.dtype not in allowed:
        raise UsageError(f"{op}: is defined on {', '.join(allowed)}, got {t}.")


def check_shape(op: str, what: str, t: TensorType, shape: tuple[int, ...]) -> None:
    """Raises UsageError unless t has exactly this shape."""
    if t.shape != shape:
        raise UsageError(f"{op}: {what} must have shape {list(shape)}, got {t}.")


def check_floats(op: str, what: str, t: TensorType, shape: tuple[int, ...]) -> None:
    """Raises UsageError unless t is f32 and has exactly this shape."""
    check_dtype(op, t, FLOATS)
    check_shape(op, what, t, shape)


def same_dtype(op: str, types: Sequence[TensorType]) -> str:
    """The common dtype of `types`. Raises UsageError."""
    if len({t.dtype for t in types}) != 1:
        raise UsageError(f"{op}: operands must have one dtype, got {describe(tuple(types))}.")
    return types[0].dtype


def broadcast(op: str, types: Sequence[TensorType]) -> tuple[int, ...]:
    """numpy's broadcast shape (NUMERICS 10.1). Raises UsageError."""
    rank = max(len(t.shape) for t in types)
    shape = [1] * rank
    for t in types:
        for axis, n in enumerate(t.shape, rank - len(t.shape)):
            if n != 1 and shape[axis] not in (1, n):
                raise UsageError(f"{op}: {describe(tuple(types))} do not broadcast together.")
            if n != 1:
                shape[axis] = n
    return tuple(shape)


def axis_of(op: str, dim: int, rank: int) -> int:
    """`dim` counted from the front; a 0-d tensor has the one axis 0. Raises UsageError."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise UsageError(f"{op}: axis {dim} does not exist in a tensor of rank {rank}.")
    return dim % size


def rn32(value: float) -> np.ndarray:
    """RN32 of a binary64 attribute as a 0-d array, NaN canonical (NUMERICS 1.5, 1.9)."""
    if value != value:
        return np.array(0x7FC00000, dtype=np.uint32).view(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(value, dtype=np.float64).astype(np.float32)


def whole(op: str, name: str, value: float) -> int:
    """A float attribute that must be a 64-bit integer (NUMERICS 10.1). Raises UsageError."""
    if not (value == value and abs(value) <= 2.0**63) or int(value) != value:
        raise UsageError(f"{op}: {name} must be an integer for an integer tensor, got {value}.")
    if not -_INT64 <= int(value) < _INT64:
        raise UsageError(f"{op}: {name}={value} does not fit 64 bits.")
    return int(value)


def constant(op: str, name: str, value: float, dtype: str) -> np.ndarray:
    """A float attribute as a 0-d array of `dtype`. Raises UsageError where it does not fit."""
    if dtype == "f32":
        return rn32(value)
    if dtype == "f64":
        if value != value:
            return np.array(0x7FF8 << 48, dtype=np.uint64).view(np.float64)
        return np.asarray(value, dtype=np.float64)
    exact = whole(op, name, value)
    if dtype == "bool" and exact not in (0, 1):
        raise UsageError(f"{op}: {name}={value} is not a bool.")
    kind: Any = DTYPES[dtype]
    bounds = np.iinfo(kind) if dtype != "bool" else None
    if bounds is not None and not bounds.min <= exact <= bounds.max:
        raise UsageError(f"{op}: {name}={value} does not fit {dtype}.")
    return np.asarray(exact, dtype=kind)


# Kinds of attributes without a default.
INT, INTS, FLOAT = AttrSpec("int"), AttrSpec("ints"), AttrSpec("float")
STR, DTYPE = AttrSpec("str"), AttrSpec("dtype")
MASK = {"output_mask": AttrSpec("bools", (True, True, True))}


def declares(op_class: str, **shared: Any) -> Callable[..., Declares]:
    """The decorator by which a family declares its operators of `op_class`."""

    def declare(
        name: str,
        clause: str,
        names: tuple[str, ...],
        parts: Part | tuple[Part, ...] | Mapping[str, tuple[Part, ...]] | None = None,
        attrs: Mapping[str, AttrSpec] | None = None,
        **facts: Any,
    ) -> Declares:
        """`names` are the operands; parts alone are those of an f32's outputs."""
        parts = {} if parts is None else parts
        if not isinstance(parts, Mapping):
            parts = {"f32": parts if isinstance(parts, tuple) else (parts,)}
        own = {"operands": names, "parts": parts, "attrs": dict(attrs or {}), **shared, **facts}
        return operator(name, clause=clause, op_class=op_class, **own)

    return declare

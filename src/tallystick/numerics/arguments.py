"""Converts attributes from a person's form to the form in programs (NUMERICS 1.9)."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from tallystick.errors import UsageError
from tallystick.numerics.registry import AttrSpec, OpSpec
from tallystick.numerics.types import DTYPE_NAMES, Attrs, AttrValue, TensorType


def _whole(value: object) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)  # type: ignore[arg-type]


def _converted(kind: str, value: Any) -> AttrValue:
    """`value` as an attribute of this kind; TypeError or ValueError if it is not one."""
    if kind == "int":
        return _whole(value)
    if kind == "float":
        if isinstance(value, (bool, np.bool_, str)):
            raise TypeError
        number = float(value)
        if isinstance(value, (int, np.integer)) and int(number) != int(value):
            raise ValueError  # 1.9: an integer scalar must survive RN64 to mean what was written
        return number
    if kind == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError
        return bool(value)
    if kind == "ints":
        many = value if isinstance(value, (tuple, list, np.ndarray)) else (value,)
        return tuple(_whole(v) for v in many)
    if kind == "bools":
        return tuple(_converted("bool", v) is True for v in value)
    if kind == "dtype" and not isinstance(value, str):
        return DTYPE_NAMES[np.dtype(value)]
    if kind == "dtype" and value not in DTYPE_NAMES.values():
        return DTYPE_NAMES[np.dtype(value)]
    if not isinstance(value, str):
        raise TypeError
    return value


def _attribute(op: str, name: str, rule: AttrSpec, value: object) -> AttrValue:
    try:
        return _converted(rule.kind, value)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise UsageError(f"{op}: attribute {name!r} must be {rule.kind}, got {value!r}.") from None


def complete_attrs(
    spec: OpSpec, given: Mapping[str, object], inputs: tuple[TensorType | None, ...]
) -> Attrs:
    """Every attribute of `spec`: the given ones, converted to their kinds, and defaults.

    Raises UsageError for an attribute that is unknown, missing, or not of its kind. None stands for
    "not given".
    """
    unknown = sorted(set(given) - set(spec.attrs))
    if unknown:
        known = ", ".join(sorted(spec.attrs)) or "none"
        raise UsageError(f"{spec.name}: unknown attribute {unknown[0]!r}; known: {known}.")
    attrs: Attrs = {}
    for name, rule in spec.attrs.items():
        value = given.get(name)
        if value is not None:
            attrs[name] = _attribute(spec.name, name, rule, value)
        else:
            fallback = rule.default(attrs, inputs) if callable(rule.default) else rule.default
            if fallback is not None:
                attrs[name] = fallback
    missing = [name for name, rule in spec.attrs.items() if rule.required and name not in attrs]
    if missing:
        raise UsageError(f"{spec.name}: attribute {missing[0]!r} is missing.")
    return attrs

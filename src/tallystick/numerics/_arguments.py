"""Attributes as a person writes them, brought to the form programs hold (NUMERICS 1.9)."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from tallystick.errors import UsageError
from tallystick.numerics.registry import AttrSpec, OpSpec
from tallystick.numerics.types import DTYPE_NAMES, Attrs, AttrValue, TensorType

_ADAM: dict[str, AttrValue] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}

# ATen's defaults, or torch.optim's. An attribute that is not here must be given.
_COMMON: dict[str, AttrValue] = {
    "alpha": 1.0,
    "beta": 1.0,
    "keepdim": False,
    "correction": 1.0,
    "stride": (1, 1),
    "padding": (0, 0),
    "dilation": (1, 1),
    "transposed": False,
    "output_padding": (0, 0),
    "groups": 1,
    "output_mask": (True, True, True),
    "approximate": "none",
    "reduction": "mean",
    "ignore_index": -100,
    "padding_idx": -1,
    "scale_grad_by_freq": False,
    "negative_slope": 0.01,
    "diagonal": 0,
    "draw": 0,
}
_BY_OPERATOR: dict[str, dict[str, AttrValue]] = {
    "aten.native_layer_norm": {"eps": 1e-5},
    "aten._native_batch_norm_legit_functional": {"momentum": 0.1, "eps": 1e-5},
    "aten._native_batch_norm_legit_no_training": {"eps": 1e-5},
    "aten.native_batch_norm_backward": {"train": True, "eps": 1e-5},
    "aten.max_pool2d_with_indices": {"ceil_mode": False},
    "aten.max_pool2d_with_indices_backward": {"ceil_mode": False},
    "aten.threshold_backward": {"threshold": 0.0},
    "aten.slice": {"dim": 0, "start": 0, "step": 1},
    "aten.slice_scatter": {"dim": 0, "start": 0, "step": 1},
    "aten.cat": {"dim": 0},
    "aten.full": {"dtype": "f32"},
    "aten.arange": {"start": 0.0, "step": 1.0, "dtype": "i64"},
    "tallystick.uniform": {"low": 0.0, "high": 1.0},
    "tallystick.normal": {"mean": 0.0, "std": 1.0},
    "tallystick.adamw_step": {**_ADAM, "weight_decay": 0.01},
    "tallystick.adam_step": {**_ADAM, "weight_decay": 0.0},
    "tallystick.sgd_step": {
        "momentum": 0.0,
        "dampening": 0.0,
        "weight_decay": 0.0,
        "nesterov": False,
    },
}
# Numbers a person must choose: beta is not addmm's factor, and a pool's stride is its kernel_size.
_NO_DEFAULT = {
    ("tallystick.beta_power", "beta"),
    ("aten.max_pool2d_with_indices", "stride"),
    ("aten.max_pool2d_with_indices_backward", "stride"),
}


def _default(spec: OpSpec, name: str) -> AttrValue | None:
    if (spec.name, name) in _NO_DEFAULT:
        return None
    own = _BY_OPERATOR.get(spec.name, {})
    return own.get(name, _COMMON.get(name))


def _slice_end(attrs: Attrs, inputs: tuple[TensorType | None, ...]) -> None:
    """ATen's open end: the axis's size."""
    x, dim = (inputs[0] if inputs else None), attrs.get("dim")
    if x is not None and isinstance(dim, int) and -len(x.shape) <= dim < len(x.shape):
        attrs.setdefault("end", x.shape[dim])


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
    """Every attribute of `spec`: those given, converted to their kinds, and defaults.

    Raises UsageError for one that is unknown, missing, or not of its kind. None stands for
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
        elif rule.required:
            fallback = _default(spec, name)
            if fallback is not None:
                attrs[name] = fallback
    if "end" in spec.attrs and "start" in spec.attrs and spec.attrs["end"].kind == "int":
        _slice_end(attrs, inputs)
    missing = [name for name, rule in spec.attrs.items() if rule.required and name not in attrs]
    if missing:
        raise UsageError(f"{spec.name}: attribute {missing[0]!r} is missing.")
    return attrs

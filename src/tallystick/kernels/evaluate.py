"""One operator on numpy arrays, without torch (DESIGN 9).

A referee runs it, and any reader can check spec/NUMERICS.md with it.

The output of a *view* operator is its operand's memory. No kernel computes it, on any device: the
planner asks for the strides once (program/layout.py). A view is given as a function of a numpy
array because numpy computes strides; it never reads the elements.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from tallystick.devices.cpu import CPU
from tallystick.devices.environment import check_environment, exact_environment
from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.contracts import Contract, find_without_log
from tallystick.numerics.operators.common import integers
from tallystick.numerics.operators.movement import slice_of
from tallystick.numerics.registry import OpSpec, all_ops, complete_attrs
from tallystick.numerics.types import DTYPE_NAMES, DTYPES, Attrs, TensorType, type_of

# Over attributes and the one operand: a view of it or, where numpy cannot give one, a copy.
View = Callable[[Attrs, np.ndarray], np.ndarray]

view: Attachments[View] = Attachments("view", "tallystick.kernels.evaluate")


@view("aten.view")
def _view(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    return x.reshape(integers(attrs, "size"))


@view("aten.permute")
def _permute(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    return np.transpose(x, integers(attrs, "dims"))


@view("aten.expand")
def _expand(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    seen: np.ndarray = np.broadcast_to(x, integers(attrs, "size"))
    return seen


@view("aten.slice", named=True)
def sliced(op: str, attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The part of x that `op` names, which is a slice or an operator that scatters into one."""
    axis, taken, _ = slice_of(op, attrs, type_of(x))
    return x[(slice(None),) * axis + (taken,)]


Result = np.ndarray | tuple[np.ndarray, ...]
_Types = tuple[TensorType | None, ...]


@lru_cache(256)
def _candidates(op: str, contract: str) -> tuple[OpSpec, ...]:
    """The operator `op` of the contract called so, then its overloads. Raises
    UnsupportedOperatorError."""
    ops = {name: spec for name, spec in all_ops().items() if spec.is_under(contract)}
    found = [ops[op]] if op in ops else []
    found += [spec for name, spec in sorted(ops.items()) if name.startswith(op + ".")]
    if not found:
        near = difflib.get_close_matches(op, ops, n=3)
        hint = f"Did you mean {', '.join(near)}?" if near else "See spec/NUMERICS.md for them all."
        raise UnsupportedOperatorError(f"Operator {op!r} is not defined by {contract}.", hint)
    return tuple(found)


def _operand(op: str, position: int, x: object) -> np.ndarray | None:
    if x is None:
        return None
    if isinstance(x, np.generic):
        x = np.asarray(x)
    if not isinstance(x, np.ndarray):
        raise UsageError(
            f"{op}: operand {position} is a {type(x).__name__}, not a numpy array.",
            "Scalars are attributes, such as other=2.0.",
        )
    if x.dtype not in DTYPE_NAMES:
        raise UsageError(
            f"{op}: operand {position} has dtype {x.dtype}, which no contract knows.",
            f"Use one of {', '.join(str(d) for d in DTYPES.values())}, little-endian.",
        )
    return x


_ROWS = "Compare the call with the operator's rows in spec/NUMERICS.md, 15.4 and 16."


def _fits_kernels(x: np.ndarray) -> bool:
    """True if strides are whole elements. Views of records and of bytes may have others."""
    return x.flags.aligned and all(s % x.itemsize == 0 for s in x.strides)


def _presented(x: np.ndarray, strided: bool) -> np.ndarray:
    if x.flags.c_contiguous and x.flags.aligned:
        return x
    if strided and _fits_kernels(x):
        return x
    return np.array(x, order="C", copy=True)


def _resolve(
    op: str, types: _Types, attributes: dict[str, object], contract: Contract
) -> tuple[OpSpec, Attrs, tuple[TensorType, ...]]:
    """The one overload that takes these operands and attributes."""
    fits: list[tuple[OpSpec, Attrs, tuple[TensorType, ...]]] = []
    errors: list[UsageError] = []
    for spec in _candidates(op, contract.name):
        try:
            attrs = complete_attrs(spec, attributes, types)
            fits.append((spec, attrs, spec.infer(attrs, types)))
        except UsageError as error:
            errors.append(error)
        if fits and spec.name == op:
            return fits[0]
    if len(fits) == 1:
        return fits[0]
    if fits:
        names = ", ".join(spec.name for spec, _, _ in fits)
        raise UsageError(f"{op}: more than one overload fits: {names}.", "Name one of them.")
    if len(errors) > 1:
        tried = " ".join(str(e) for e in errors)
        raise UsageError(f"{op}: no overload takes these operands and attributes. {tried}", _ROWS)
    errors[0].next_action = errors[0].next_action or _ROWS
    raise errors[0]


@exact_environment()
def evaluate(
    op: str,
    *arrays: np.ndarray | None,
    contract: str = "ordered/1",
    **attributes: object,
) -> Result:
    """Run operator `op` ("aten.mm", "aten.exp", ...) of `contract` on numpy arrays.

    arrays: the operands, of any strides; None for an optional one that is absent. dtypes are
    float32, float64, int64, int32, uint8 and bool, as the operator's clause says. Attributes have
    ATen's names and defaults. An overload (`aten.add.Scalar`) is found from its base name
    (`aten.add`) where the operands and attributes fit only one.

    Returns a new C-contiguous array, or a tuple of them where the operator has several outputs
    (NUMERICS names their order). Raises UsageError, which names the operator, for operands or
    attributes that do not fit; UnsupportedOperatorError for an unknown operator;
    UnsupportedVersionError for an unknown contract or one that keeps a log. Raises
    EnvironmentRefusedError where the machine, or a thread of numpy's BLAS that a rounded operator
    needs, flushes subnormals or does not round to nearest, and cannot be set (NUMERICS 1.7).
    """
    meaning = find_without_log(contract)
    check_environment()
    operands = [_operand(op, i, x) for i, x in enumerate(arrays)]
    types: _Types = tuple(
        None if x is None else TensorType(DTYPE_NAMES[x.dtype], x.shape) for x in operands
    )
    spec, attrs, out_types = _resolve(op, types, dict(attributes), meaning)
    return _run(spec, meaning, attrs, operands, out_types)


def _run(
    spec: OpSpec,
    contract: Contract,
    attrs: Attrs,
    operands: Sequence[np.ndarray | None],
    out_types: tuple[TensorType, ...],
) -> Result:
    kernel = None if spec.name in view else CPU.kernels(contract)[spec.name]
    strided = kernel is None or kernel.strided
    inputs = [None if x is None else _presented(x, strided) for x in operands]
    if kernel is None:
        (x,) = inputs
        assert x is not None  # the declaration refused an absent operand
        return np.array(view[spec.name](attrs, x), order="C", copy=True)
    outputs = tuple(np.empty(t.shape, DTYPES[t.dtype]) for t in out_types)
    kernel.run(attrs, inputs, outputs)
    return outputs[0] if len(outputs) == 1 else outputs

"""Calls of `reproducible()` that are exact but for one conversion (PROGRAM 5.24).

A program has fixed shapes and few types. Eager code counts, selects by masks, and gets numbers of
other types from numpy. Their results are exact, so it does not matter who computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from tallystick.errors import UnsupportedOperatorError
from tallystick.program.capture.schema import DTYPES, op_name

Compute = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

# Types that a tensor may have between two conversions.
_CARRIED = {
    torch.float64: np.float64, torch.int16: np.int16, torch.int8: np.int8,
}  # fmt: skip
_NUMPY = _CARRIED | {
    torch.float32: np.float32, torch.int64: np.int64, torch.int32: np.int32,
    torch.uint8: np.uint8, torch.bool: np.bool_,
}  # fmt: skip

# Positions, counts and moved elements, whose number depends on values.
_BY_VALUE = frozenset({
    "aten.nonzero", "aten.masked_select", "aten.repeat_interleave.Tensor", "aten.bincount",
    "aten._unique2", "aten.unique_consecutive", "aten.unique_dim",
})  # fmt: skip
_OF_INTEGERS = frozenset({"aten._unique2", "aten.unique_consecutive", "aten.unique_dim"})

# Comparisons round nothing. Those of the contract's types are the contract's.
_COMPARISONS = frozenset(
    f"aten.{name}.{form}"
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for form in ("Scalar", "Tensor")
)

# Movement of elements of types that no program has; the contract's kernels move the others.
_MOVED = frozenset({
    "aten.cat", "aten.stack", "aten.index.Tensor", "aten.index_select", "aten.gather", "aten.flip",
    "aten.roll", "aten.repeat", "aten.slice_scatter", "aten.select_scatter",
})  # fmt: skip

# The operand of these is indexed by the list of tensors after it.
_INDEXED = frozenset({
    "aten.index.Tensor", "aten._unsafe_index.Tensor", "aten.index_put", "aten.index_put_",
    "aten._unsafe_index_put", "aten._index_put_impl_",
})  # fmt: skip


def answer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Compute) -> Any:
    """The result of a call that is exact, or NotImplemented.

    Raises UnsupportedOperatorError for one whose order or sum would be torch's.
    """
    name = op_name(func)
    if name == "aten._to_copy":
        dtype = kwargs.get("dtype") or args[0].dtype
        return converted(args[0], dtype) if _is_ours(args[0].dtype, dtype) else NotImplemented
    if name == "aten.allclose":
        near = compute(torch.ops.aten.isclose.default, args, kwargs)
        return bool(near.numpy().all())
    if name in _BY_VALUE:
        _check_by_value(name, args, kwargs)
        return func(*args, **kwargs)
    tensors = [leaf for leaf in _leaves(args) if isinstance(leaf, Tensor)]
    if name in _COMPARISONS and any(t.dtype in _CARRIED for t in tensors):
        return func(*args, **kwargs) if len({t.dtype for t in tensors}) == 1 else NotImplemented
    if name in _MOVED and any(t.dtype in _CARRIED and t.dtype not in DTYPES for t in tensors):
        return func(*args, **kwargs)
    return NotImplemented


def is_exchange(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether processes exchange tensors by the call, as torch.distributed makes it.

    Raises UnsupportedOperatorError where it adds the floats of several processes.
    """
    if func.namespace not in ("c10d", "_c10d_functional"):
        return False
    if "reduce" in op_name(func) and torch.distributed.get_world_size() > 1:
        leaves, _ = pytree.tree_flatten(args)
        if any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in leaves):
            raise UnsupportedOperatorError(
                f"{op_name(func)} adds the floats of several processes in the library's order.",
                "Use one process, or `tallystick train --workers`, which folds by the contract.",
            )
    return True


def _leaves(args: tuple[Any, ...]) -> list[Any]:
    return [leaf for a in args for leaf in (a if isinstance(a, (list, tuple)) else (a,))]


def _is_ours(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether the conversion is of 5.24: one of the types is carried only."""
    known = source in _NUMPY and target in _NUMPY
    return known and (source in _CARRIED or target in _CARRIED)


def _check_by_value(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if name in _OF_INTEGERS and args[0].is_floating_point():
        raise UnsupportedOperatorError(
            f"{name} of floats is not defined: which of -0 and +0 stays is torch's choice.",
            "Take the distinct values of integers.",
        )
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    if name == "aten.bincount" and weights is not None:
        raise UnsupportedOperatorError(
            "aten.bincount with weights adds floats in torch's order.", "Use index_add_."
        )


def converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` as `dtype`, with its strides: one rounding to nearest, or toward zero to an integer.

    A NaN is the canonical one. What no integer of 64 bits holds (of 32 for narrower ones) is the
    least integer; narrower integers are the low bits.
    """
    made, source = torch.empty_like(x, dtype=dtype), x.detach().numpy()
    target, wanted = made.numpy(), _NUMPY[dtype]
    with np.errstate(all="ignore"):
        if x.is_floating_point() and np.issubdtype(wanted, np.integer):
            limit = 2.0 ** (63 if dtype == torch.int64 else 31)
            inside = (source >= -limit) & (source < limit)
            whole = np.where(inside, source, -limit).astype(np.int64)
            np.copyto(target, whole, casting="unsafe")
            return made
        np.copyto(target, source, casting="unsafe")
        if made.is_floating_point() and x.is_floating_point():
            target[np.isnan(target)] = np.nan
    return made


def by_positions(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an indexing call, with positions in the place of masks.

    Values that one mask alone assigns need no positions: a rule of capture's writes them.
    """
    if op_name(func) not in _INDEXED:
        return args
    is_sum = len(args) > 3 and args[3]
    if len(args) > 2 and args[2].numel() and not is_sum and len(args[1]) == 1:
        return args
    indices: list[Any] = []
    for index in args[1]:
        mask = isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)
        here = args[0].shape[len(indices) : len(indices) + (index.dim() if mask else 0)]
        if mask and index.dim() and index.shape == here:
            indices.extend(torch.nonzero(index).unbind(1))
        else:
            indices.append(index)
    return (args[0], indices, *args[2:])


def as_float32(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A float64 number among float32 tensors converted first, as torch promotes: it has no axis."""
    tensors = [leaf for leaf in _leaves(args) if isinstance(leaf, Tensor)]
    if not any(t.dtype == torch.float32 and t.dim() for t in tensors):
        return args

    def one(value: Any) -> Any:
        number = isinstance(value, Tensor) and value.dtype == torch.float64 and not value.dim()
        return converted(value, torch.float32) if number else value

    return tuple(type(a)(map(one, a)) if isinstance(a, (list, tuple)) else one(a) for a in args)

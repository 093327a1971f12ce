"""The kernel: what computes one operator on a device; and what kernels share: operands of a call,
masks as bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tallystick import _core
from tallystick.devices.device import Tensor
from tallystick.errors import RefusedOperandsError, UsageError
from tallystick.numerics.types import Attrs

T = TypeVar("T")  # the arrays or tensors of a device
# Over attributes, inputs (None where an optional one is absent) and C-contiguous outputs.
Run = Callable[[Attrs, Sequence[Tensor | None], Sequence[Tensor]], None]


@dataclass(frozen=True)
class Kernel:
    """A function that computes one operator on a device, and its demands on memory.

    `run` fills the outputs. A `strided` kernel takes operands of any strides. For any other kernel
    the caller makes the operands C-contiguous. `inplace` lists (input, output) pairs that may share
    storage. `widens` are the operands that may be bf16 or f16 in the place of their float32 values.
    `attends`, of attention's last operator, computes all three from q, k, v, slopes and sinks, with
    the attributes of the first (NUMERICS 18).
    """

    run: Run
    strided: bool = False
    inplace: tuple[tuple[int, int], ...] = ()
    widens: tuple[int, ...] = ()
    attends: Run | None = None


def entry(_name: str, run: Run, **marks: Any) -> Kernel:
    """A table's entry, of a decorated function and its marks (numerics/attachments.py)."""
    return Kernel(run, **marks)


def replaced(
    ordinary: Mapping[str, Kernel], own: frozenset[str], run_of: Callable[[str, Run], Run]
) -> Mapping[str, Kernel]:
    """`ordinary` kernels, with other functions for the operators `own` among them: `run_of` gives
    each one, of its name and the ordinary function. It raises where there is none, so that a
    contract's operator never keeps the ordinary kernel silently. They take float32 alone, and none
    computes a whole attention: `attends` has the ordinary bits."""
    made = {op: run_of(op, ordinary[op].run) for op in own & ordinary.keys()}
    changed = {
        op: replace(ordinary[op], run=run, widens=(), attends=None) for op, run in made.items()
    }
    return {**ordinary, **changed}


def operand(inputs: Sequence[T | None], position: int) -> T:
    """The tensor at `position`; the declaration has refused absent ones."""
    x = inputs[position]
    if x is None:
        raise UsageError(f"Operand {position} is missing.")
    return x


def optional(inputs: Sequence[T | None], position: int) -> T | None:
    """The tensor at `position`; None where there is none."""
    return inputs[position] if position < len(inputs) else None


def padded(tensors: Sequence[Any], count: int) -> list[Any]:
    """The tensors of a call in their places, `count` of them; None for each that is not there."""
    return [*tensors, *[None] * (count - len(tensors))]


def wanted(outputs: Sequence[T], mask: Sequence[bool]) -> list[T | None]:
    """The outputs in their places; None for those masked off."""
    remaining = iter(outputs)
    return [next(remaining) if on else None for on in mask]


def refused_operands(error: BaseException) -> bool:
    """True if `error`, which a kernel raised, says that the kernel refuses its operands' values.

    Such an execution stops on every machine. Any other error of a kernel (MemoryError, an
    interrupt, a fault of this program) says nothing about the run.
    """
    return isinstance(error, RefusedOperandsError | _core.OperandError)


Arrays = Sequence[np.ndarray | None]
Outputs = Sequence[np.ndarray]


def as_bytes(mask: np.ndarray) -> np.ndarray:
    """A bool array as bytes 0 and 1, without a copy: kernels read masks in this form."""
    return mask.view(np.uint8)


def copy(x: np.ndarray, out: np.ndarray) -> None:
    """Copy the bits of x, of any strides, into C-contiguous `out` of the same dtype and shape."""
    kind = {1: np.uint8, 2: np.uint16}.get(x.itemsize)  # of the others the core knows the dtypes
    _core.copy_strided(*((x, out) if kind is None else (x.view(kind), out.view(kind))))

"""The tables of the kernels on a GPU: those of `ordered/1`, and those that replace some of them
under `rounded/1`, bounded `replay/1` and `exact/1`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tallystick.errors import UsageError
from tallystick.kernels.cuda.marks import Rounding
from tallystick.kernels.cuda.tensor import DeviceTensor
from tallystick.kernels.table import Kernel
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs

Tensors = Sequence[DeviceTensor | None]
Outputs = Sequence[DeviceTensor]


def _kernel(
    _name: str, run: Any, strided: bool = False, inplace: tuple[tuple[int, int], ...] = ()
) -> Kernel:
    return Kernel(run, strided, inplace)


cuda_kernel: Attachments[Kernel] = Attachments(
    "CUDA kernel", "tallystick.kernels.cuda.ops_*", _kernel
)

# The rounded operators (NUMERICS 13.1). The functions have one more argument first.
rounded_kernel: Attachments[Callable[[Rounding, Attrs, Tensors, Outputs], None]] = Attachments(
    "rounded CUDA kernel", "tallystick.kernels.cuda.rounded_*"
)

# The operators of the dot class by sums of integers (NUMERICS 17.1); the first argument is B.
exact_kernel: Attachments[Callable[[int, Attrs, Tensors, Outputs], None]] = Attachments(
    "exact CUDA kernel", "tallystick.kernels.cuda.exact_*"
)


def operand(inputs: Tensors, position: int) -> DeviceTensor:
    """The tensor at `position`; the shape rule has refused absent ones."""
    x = inputs[position]
    if x is None:
        raise UsageError(f"Operand {position} is missing.")
    return x


def optional(inputs: Tensors, position: int) -> DeviceTensor | None:
    """The tensor at `position`; None where there is none."""
    return inputs[position] if position < len(inputs) else None

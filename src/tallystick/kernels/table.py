"""The kernel, and the table of the kernels of `ordered/1` on this machine's processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick import _core
from tallystick.errors import RefusedOperandsError
from tallystick.kernels.device import Tensor
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs

# Over attributes, inputs (None where an optional one is absent) and C-contiguous outputs.
Run = Callable[[Attrs, Sequence[Tensor | None], Sequence[Tensor]], None]


@dataclass(frozen=True)
class Kernel:
    """A function that computes one operator on a device, and its demands on memory.

    `run` fills the outputs. A `strided` kernel takes operands of any strides. For any other kernel
    the caller makes the operands C-contiguous. `inplace` lists (input, output) pairs that may share
    storage.
    """

    run: Run
    strided: bool = False
    inplace: tuple[tuple[int, int], ...] = ()


def _kernel(
    _name: str, run: Any, strided: bool = False, inplace: tuple[tuple[int, int], ...] = ()
) -> Kernel:
    return Kernel(run, strided, inplace)


kernel: Attachments[Kernel] = Attachments("kernel", "tallystick.kernels.cpu.*", _kernel)


def run_of(name: str) -> Run:
    """The function that fills the outputs of operator `name` under `ordered/1` on the processor.
    The operator is no view."""
    return kernel[name].run


def refused_operands(error: BaseException) -> bool:
    """True if `error`, which a kernel raised, says that the kernel refuses its operands' values.

    Such an execution stops on every machine. Any other error of a kernel (MemoryError, an
    interrupt, a fault of this program) says nothing about the run.
    """
    return isinstance(error, RefusedOperandsError | _core.OperandError)

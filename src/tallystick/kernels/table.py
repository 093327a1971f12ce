"""What a kernel is, and the table of those of `ordered/1` on this machine's processor."""

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
    """What computes one operator on a device, and what it asks of memory.

    `run` fills the outputs. A `strided` kernel takes operands of any strides; for any other the
    caller makes them C-contiguous. `inplace` lists (input, output) pairs that may share storage.
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
    """What fills the outputs of operator `name`, no view, under `ordered/1` on the processor."""
    return kernel[name].run


def refused_operands(error: BaseException) -> bool:
    """Whether `error`, raised by a kernel, says that its operands' content is none it takes.

    Every machine stops there. Anything else a kernel raises (MemoryError, an interrupt, a fault
    of this program) says nothing about the run.
    """
    return isinstance(error, RefusedOperandsError | _core.OperandError)

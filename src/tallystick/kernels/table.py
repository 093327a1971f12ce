"""The kernels of `ordered/1` on this machine's processor, by operator name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs

# Inputs (None where an optional one is absent) and preallocated C-contiguous outputs.
Run = Callable[[Attrs, Sequence[np.ndarray | None], Sequence[np.ndarray]], None]
View = Callable[[Attrs, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Kernel:
    """What computes one operator, and what it asks of memory.

    `run` fills the outputs; `view`, instead of it, returns a view of its one operand or, where
    numpy cannot give one, a copy. A `strided` kernel takes operands of any strides; for any other
    the caller makes them C-contiguous. `inplace` lists (input, output) pairs that may share
    storage.
    """

    run: Run | None
    view: View | None = None
    strided: bool = False
    inplace: tuple[tuple[int, int], ...] = ()

    @property
    def is_view(self) -> bool:
        """Whether its output is its operand's memory, seen otherwise."""
        return self.view is not None


def _kernel(
    _name: str,
    function: Any,
    view: bool = False,
    strided: bool = False,
    inplace: tuple[tuple[int, int], ...] = (),
) -> Kernel:
    if view:
        return Kernel(None, function, strided=True)
    return Kernel(function, None, strided, inplace)


kernel: Attachments[Kernel] = Attachments("kernel", "tallystick.kernels.cpu.*", _kernel)


def run_of(name: str) -> Run:
    """What fills the outputs of operator `name`, which is no view, under `ordered/1`."""
    run = kernel[name].run
    assert run is not None, f"{name} is a view"
    return run

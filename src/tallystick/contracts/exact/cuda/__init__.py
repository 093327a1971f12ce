"""The kernels of the dot class by sums of integers on a GPU (NUMERICS 17.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tallystick.devices.cuda.launch import Outputs, Tensors
from tallystick.devices.kernel import Kernel, replaced
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.registry import dot_operators
from tallystick.numerics.types import Attrs

# Over B, then what every kernel gets.
exact_kernel: Attachments[Callable[[int, Attrs, Tensors, Outputs], None]] = Attachments(
    "exact CUDA kernel", "tallystick.contracts.exact.cuda.*"
)


def by_integers(ordinary: Mapping[str, Kernel], width: int) -> Mapping[str, Kernel]:
    """`ordinary` kernels, with those of the dot class by integers of B = `width`."""
    return replaced(ordinary, dot_operators(), lambda op, _: partial(exact_kernel[op], width))

"""The kernels of the dot class by sums of integers on a GPU (NUMERICS 17.1)."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.devices.cuda.launch import Outputs, Tensors
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs

# Over B, then what every kernel gets.
exact_kernel: Attachments[Callable[[int, Attrs, Tensors, Outputs], None]] = Attachments(
    "exact CUDA kernel", "tallystick.contracts.exact.cuda.*"
)

"""The kernels of the rounded operators on a GPU (NUMERICS 13.1)."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.marks import Rounding

# Over the way to round, then what every kernel gets.
rounded_kernel: Attachments[Callable[[Rounding, Attrs, Tensors, Outputs], None]] = Attachments(
    "rounded CUDA kernel", "tallystick.contracts.rounded.cuda.*"
)

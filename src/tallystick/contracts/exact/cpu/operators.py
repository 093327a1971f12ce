"""The kernels of the operators of `exact/1` (NUMERICS 17.1)."""

from __future__ import annotations

from collections.abc import Callable

from tallystick.devices.arrays import Arrays, Outputs
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs

# Over attributes, inputs, preallocated C-contiguous outputs, and B of 17.1.
Exactly = Callable[[Attrs, Arrays, Outputs, int], None]

exact_kernel: Attachments[Exactly] = Attachments("exact kernel", "tallystick.contracts.exact.cpu.*")

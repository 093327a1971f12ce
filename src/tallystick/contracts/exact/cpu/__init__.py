"""The DOTs of `exact/1`: sums of integers, which no kernel rounds (NUMERICS 17).

This module has the table of the kernels. `integers` turns groups of elements into integers, and has
the ways to multiply them: numpy's BLAS in binary64, or the core's 8-bit digits. `operators` has the
operators.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.devices.device import Arrays, Outputs
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs

# Over B of 17.1, attributes, inputs, and preallocated C-contiguous outputs.
Exactly = Callable[[int, Attrs, Arrays, Outputs], None]

exact_kernel: Attachments[Exactly] = Attachments("exact kernel", "tallystick.contracts.exact.cpu.*")

"""The table of the kernels of `ordered/1` on a GPU; the other contracts replace some of them."""

from __future__ import annotations

from tallystick.devices.device import Kernel, entry
from tallystick.numerics.attachments import Attachments

cuda_kernel: Attachments[Kernel] = Attachments(
    "CUDA kernel", "tallystick.contracts.ordered.cuda.*", entry
)

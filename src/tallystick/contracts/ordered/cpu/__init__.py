"""The table of the kernels of `ordered/1` on this machine's processor: a module per family."""

from __future__ import annotations

from tallystick.devices.device import Kernel, Run, entry
from tallystick.numerics.attachments import Attachments

kernel: Attachments[Kernel] = Attachments("kernel", "tallystick.contracts.ordered.cpu.*", entry)


def run_of(name: str) -> Run:
    """The function that fills the outputs of operator `name`, which is no view."""
    return kernel[name].run

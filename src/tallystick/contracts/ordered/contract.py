"""`ordered/1`: every operation in a declared order (NUMERICS 2 to 12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystick.devices.device import is_cuda
from tallystick.numerics.contracts import ORDERED_1, Contract, contract_family

if TYPE_CHECKING:
    from tallystick.devices.device import Device, Kernel


def ordered_kernels(device: Device) -> Mapping[str, Kernel]:
    """The kernels of `ordered/1` on `device`. Every other contract replaces some of them.

    On a torch device there are none. `ordered/torch` has the operators without freedom, for the
    published form alone (contracts/replay/stock/table.py).
    """
    if device.kind == "cpu":
        from tallystick.contracts.ordered.cpu import kernel

        return kernel
    if is_cuda(device):
        from tallystick.contracts.ordered.cuda import cuda_kernel

        return cuda_kernel
    return {}


@contract_family
@dataclass(frozen=True)
class Ordered(Contract):
    """The contract that the others change."""

    name, draft = "ordered/1", ORDERED_1

    def kernels(self, device: Device) -> Mapping[str, Kernel]:
        return ordered_kernels(device)

    def prepare(self, device: Device) -> None:
        if is_cuda(device):
            from tallystick.contracts.gpu_probe import check_gpu, differing_tiles

            check_gpu(device, self, differing_tiles(device, self))

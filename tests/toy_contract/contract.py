"""The object, as docs/adr/0035 describes one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.contracts.gpu_probe import check_gpu
from tallystick.contracts.ordered.contract import ordered_kernels
from tallystick.devices.device import Device, Kernel, is_cuda
from tallystick.numerics.contracts import Contract, contract_family
from tallystick.opening.quantity import Quantity, Rule, Site

from .kernels import in_short_chunks
from .opening import short_chunks

CHUNK = 32


@contract_family
@dataclass(frozen=True)
class Toy(Contract):
    """As `ordered/1`, but a chunk of mm and bmm has 32 terms (NUMERICS 2.1 has 128)."""

    name, draft, clause = "toy/1", "toy/1-draft.1", "2.1 with chunks of 32"

    @property
    def own_operators(self) -> frozenset[str]:
        return frozenset({"aten.mm", "aten.bmm"})

    def rule(self, site: Site, ordinary: Rule) -> Quantity:
        return short_chunks(site, CHUNK) if site.op in self.own_operators else ordinary(site)

    def kernels(self, device: Device) -> Mapping[str, Kernel]:
        return in_short_chunks(device, ordered_kernels(device), self.own_operators, CHUNK)

    def prepare(self, device: Device) -> None:
        if is_cuda(device):
            check_gpu(device, self, ())

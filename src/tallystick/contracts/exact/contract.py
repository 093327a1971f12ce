"""`exact/1`: products are exact sums of integers (NUMERICS 17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.contracts.ordered.contract import ordered_kernels
from tallystick.devices.device import is_cuda, replaced
from tallystick.numerics.contracts import Contract, ContractSettings, contract_family
from tallystick.numerics.registry import dot_operators

if TYPE_CHECKING:
    from tallystick.devices.device import Device, Kernel
    from tallystick.opening.quantity import Quantity, Rule, Site

DEFAULT_WIDTH = 22  # the one nearest to binary32


@contract_family
@dataclass(frozen=True)
class Exact(Contract):
    """`width` is B of 17.1."""

    width: int = DEFAULT_WIDTH

    name, draft, clause = "exact/1", "exact/1-draft.1", "17"

    @classmethod
    def read(cls, settings: ContractSettings) -> Contract:
        text = settings.take("b", DEFAULT_WIDTH)
        known = [width for width in BLOCK_LENGTHS if str(width) == text]
        if not known:
            widths = ", ".join(map(str, BLOCK_LENGTHS))
            raise settings.refuse(f"b is {text[:20]!r}, not {widths}")
        return cls(known[0])

    def numbers(self) -> list[str]:
        return [f"b={self.width}"]

    @property
    def coarseness(self) -> float:
        # A row's largest element may be 2^8 times the typical one, and the unit follows it.
        return 2.0 ** (24 - self.width + 8)

    @property
    def own_operators(self) -> frozenset[str]:
        """The operators whose DOTs are sums of integers (17.1)."""
        return dot_operators()

    def rule(self, site: Site, ordinary: Rule) -> Quantity:
        if site.op not in self.own_operators:
            return ordinary(site)
        from tallystick.contracts.exact.opening import exact_rule

        return exact_rule(site, self.width) or ordinary(site)

    def kernels(self, device: Device) -> Mapping[str, Kernel]:
        table: Mapping[str, Callable[..., None]]
        if device.kind == "cpu":
            from tallystick.contracts.exact.cpu import exact_kernel as table
        elif is_cuda(device):
            from tallystick.contracts.exact.cuda import exact_kernel as table
        else:
            return {}
        own = self.own_operators
        return replaced(ordered_kernels(device), own, lambda op, _: partial(table[op], self.width))

    def prepare(self, device: Device) -> None:
        if device.kind == "cpu":
            from tallystick.contracts.exact.cpu.integers import prepare

            prepare(self.width)
        elif is_cuda(device):
            from tallystick.contracts.exact.cuda.ways import differing_ways
            from tallystick.contracts.gpu_probe import check_gpu
            from tallystick.products.cuda.cublas import search

            search(device)
            check_gpu(device, self, differing_ways(device, self))

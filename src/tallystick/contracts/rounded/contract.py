"""`rounded/1`: products and sums are the real number, rounded once (NUMERICS 13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from tallystick.contracts.ordered.contract import ordered_kernels
from tallystick.devices.device import is_cuda
from tallystick.numerics.contracts import MAX_BITS, Contract, ContractSettings, contract_family
from tallystick.numerics.registry import rounded_operators

if TYPE_CHECKING:
    from tallystick.devices.device import Device, Kernel
    from tallystick.opening.quantity import Quantity, Rule, Site

# Of 13.2.
MIN_BITS = 20


def read_bits(settings: ContractSettings) -> int:
    """B of 13.2, 32 by default."""
    return settings.whole("b", MAX_BITS, MIN_BITS, MAX_BITS)


def sums_floats(contract: Contract, site: Site) -> bool:
    """True if the element at `site` is one of a rounded operator."""
    return site.op in contract.own_operators and site.outputs[site.out].dtype == "f32"


def rounded_kernels(bits: int, device: Device) -> Mapping[str, Kernel]:
    """The kernels on `device` where an element of a rounded operator is R(v*) on the grid of B =
    `bits`."""
    ordinary = ordered_kernels(device)
    if device.kind == "cpu":
        from tallystick.contracts.rounded.cpu import with_rounded

        return with_rounded(ordinary, bits)
    if is_cuda(device):
        from tallystick.contracts.rounded.cuda import with_rounded as on_gpu

        return on_gpu(ordinary, bits)
    return {}


def prepare_rounded(contract: Contract, device: Device, more: Iterable[str] = ()) -> None:
    """Find the library that multiplies in binary64, and probe a GPU; `more` finds what differs
    there beside it (gpu_probe.py)."""
    if device.kind == "cpu":
        from tallystick.products.engines import current_engine

        current_engine()
    elif is_cuda(device):
        from tallystick.contracts.gpu_probe import check_gpu, differing_tiles
        from tallystick.products.cuda.cublas import search

        search(device)
        check_gpu(device, contract, chain(differing_tiles(device, contract), more))


@contract_family
@dataclass(frozen=True)
class Rounded(Contract):
    """`bits` is B of 13.2: 32 for binary32 itself."""

    bits: int = MAX_BITS

    name, draft, clause = "rounded/1", "rounded/1-draft.1", "13"

    @classmethod
    def read(cls, settings: ContractSettings) -> Contract:
        return cls(read_bits(settings))

    def numbers(self) -> list[str]:
        return [] if self.bits == MAX_BITS else [f"b={self.bits}"]

    @property
    def coarseness(self) -> float:
        return 2.0 ** (MAX_BITS - self.bits)

    @property
    def own_operators(self) -> frozenset[str]:
        """Those of 13.1; `aten.sum`, `aten.mean` and their overloads on f32 operands only."""
        return rounded_operators()

    def rule(self, site: Site, ordinary: Rule) -> Quantity:
        if not sums_floats(self, site):
            return ordinary(site)
        from tallystick.contracts.rounded.opening import rounded_rule

        return rounded_rule(site, self.bits)

    def kernels(self, device: Device) -> Mapping[str, Kernel]:
        return rounded_kernels(self.bits, device)

    def prepare(self, device: Device) -> None:
        prepare_rounded(self, device)

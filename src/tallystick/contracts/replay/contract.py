"""`replay/1`: stock kernels, and a log of how they rounded (NUMERICS 14)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallystick.contracts.rounded.contract import (
    Rounded,
    prepare_rounded,
    read_bits,
    rounded_kernels,
    sums_floats,
)
from tallystick.devices.device import is_cuda
from tallystick.errors import UsageError
from tallystick.numerics.contracts import (
    MAX_BITS,
    Contract,
    ContractSettings,
    contract_family,
    find_contract,
)
from tallystick.numerics.registry import rounded_operators

if TYPE_CHECKING:
    from tallystick.devices.device import Device, Kernel
    from tallystick.opening.quantity import Quantity, Rule, Site
    from tallystick.program.ir import Program

FORMS = ("bounded", "published")
SCALES = ("binary", "decimal")
# 14.9: τ = T·2⁻⁴⁰ is a part of a value's power of two; at T = 2⁴⁰ no element is ever logged.
MAX_THRESHOLD = 1 << 40
_OPERATOR = re.compile(r"[a-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)+", re.ASCII)


def default_threshold(bits: int) -> int:
    """T where a person names none: half of the way from a value of the grid to a boundary.

    The error of stock kernels is far smaller, so a calibration (Algorithm 4) only saves log bytes.
    """
    return 1 << (47 - bits)


@contract_family
@dataclass(frozen=True)
class Replay(Contract):
    """`bits` is B of 13.2; `form` is "bounded" or "published". `scale`, `threshold` (T by default)
    and `thresholds` (T of single operators, ascending) belong to the published form (14.9)."""

    bits: int = MAX_BITS
    form: str = "bounded"
    scale: str = ""
    threshold: int = 0
    thresholds: tuple[tuple[str, int], ...] = ()

    name, draft, clause = "replay/1", "replay/1-draft.1", "14"
    keeps_log = True

    # -- its numbers -------------------------------------------------------------------------------
    @classmethod
    def read(cls, settings: ContractSettings) -> Contract:
        bits, form = read_bits(settings), settings.take("form", "bounded")
        if form not in FORMS:
            raise settings.refuse(f"its form is one of {', '.join(FORMS)}")
        if form == "bounded":
            return cls(bits)
        scale = settings.take("scale", SCALES[0])
        if scale not in SCALES:
            raise settings.refuse(f"its scale is one of {', '.join(SCALES)}")
        threshold = settings.whole("tau", default_threshold(bits), 0, MAX_THRESHOLD)
        operators = sorted(key for key in settings.given if key.startswith("tau."))
        own = tuple((key[4:], settings.whole(key, 0, 0, MAX_THRESHOLD)) for key in operators)
        return cls(bits, form, scale, threshold, own)

    def numbers(self) -> list[str]:
        parts = [f"b={self.bits}", f"form={self.form}"]
        if self.form == "published":
            parts += [f"scale={self.scale}", f"tau={self.threshold}"]
            parts += [f"tau.{operator}={number}" for operator, number in self.thresholds]
        return parts

    def refused(self) -> str:
        if why := super().refused():
            return why
        if not 0 <= self.threshold <= MAX_THRESHOLD:
            return "tau is out of range"
        for operator, number in self.thresholds:
            if not 0 <= number <= MAX_THRESHOLD or number == self.threshold:
                return f"tau.{operator[:40]} is out of range, or repeats tau"
            if not _OPERATOR.fullmatch(operator):
                return f"tau.{operator[:40]} is no operator's name"
        return ""

    @property
    def coarseness(self) -> float:
        return self.without_log().coarseness

    def without_log(self) -> Contract:
        return Rounded(self.bits)

    def threshold_of(self, operator: str) -> int:
        """T of `operator` under the published form (14.9); τ = T·2⁻⁴⁰."""
        return dict(self.thresholds).get(operator, self.threshold)

    def with_thresholds(self, threshold: int, thresholds: dict[str, int]) -> Replay:
        """This published contract with other thresholds, without those equal to the default.

        Raises UnsupportedVersionError where the numbers do not make an identifier.
        """
        own = tuple(sorted((op, t) for op, t in thresholds.items() if t != threshold))
        made = replace(self, threshold=threshold, thresholds=own)
        if why := made.refused():
            raise ContractSettings(self.text, {}).refuse(why)
        return made

    # -- what it means -----------------------------------------------------------------------------
    @property
    def own_operators(self) -> frozenset[str]:
        """The operators whose elements are in V (14.5)."""
        return rounded_operators()

    def rule(self, site: Site, ordinary: Rule) -> Quantity:
        from tallystick.contracts.replay.opening import logged_rule, published_rule

        made = published_rule(site, ordinary, self.bits) if self.form == "published" else None
        if made is None and sums_floats(self, site):
            return logged_rule(site, self.bits)
        return made or ordinary(site)

    def check_program(self, program: Program) -> None:
        if self.form == "published":
            from tallystick.contracts.replay.published import check_program

            check_program(program)

    # -- what computes it --------------------------------------------------------------------------
    @property
    def kind_on_gpu(self) -> str:
        return "torch" if self.form == "published" else "cuda"

    def kernels(self, device: Device) -> Mapping[str, Kernel]:
        """Those of an empty log (14.5). The room beside this file has the others.

        The published form computes on a GPU by torch, the bounded form by this package.
        """
        if device.kind == "torch" and self.form == "published":
            from tallystick.contracts.replay.stock.table import stock_kernels

            return stock_kernels(self, device)
        if is_cuda(device) and self.form == "published":
            return {}
        return rounded_kernels(self.bits, device)

    def prepare(self, device: Device) -> None:
        if self.form == "published" and device.kind == "torch":
            from tallystick.contracts.replay.stock.table import stock_of

            stock_of(device).prepare()
        elif self.form == "bounded" and is_cuda(device):
            from tallystick.contracts.replay.bounded.cuda_log import differing_logs

            prepare_rounded(self, device, differing_logs(device, self.bits))
        elif device.kind == "cpu":
            prepare_rounded(self, device)


def find_replay(name: str) -> Replay:
    """The contract that keeps a log and is called `name`. Raises UsageError for another one,
    UnsupportedVersionError."""
    contract = find_contract(name)
    if not isinstance(contract, Replay):
        raise UsageError(
            f"Contract {contract} keeps no rounding log.", "Run the program without one."
        )
    return contract

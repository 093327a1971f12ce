"""What a worker does with the sums that it has computed: here an honest one's hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tallystick.devices.device import Tensor
from tallystick.program.ir import Value

if TYPE_CHECKING:
    from tallystick.run.distributed.checks import ShareChecks


class Hand:
    """An honest worker signs and sends what it computed. A lying one (`run.cheats.workers`) changes
    it at one of these points; the rest of its code is an honest worker's."""

    def before_claim(self, checks: ShareChecks) -> None:
        """Called in each step when the sums are computed, and nothing is signed yet."""

    def before_check(self, checks: ShareChecks, sums: Mapping[Value, Tensor]) -> None:
        """Called for each share of another worker that this one has computed again, before it signs
        the `sums`."""

    def after_claim(self, checks: ShareChecks) -> None:
        """Called when the claims are signed and compared, before the bytes are sent."""

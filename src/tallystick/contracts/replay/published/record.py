"""Recording a published log (NUMERICS 14.9, Algorithm 2): the side of its value where x lay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tallystick import _core
from tallystick.commit.log import ENTRIES_PER_BYTE
from tallystick.contracts.replay.contract import Replay
from tallystick.contracts.replay.entries import FIVE_NO_CHANGE
from tallystick.contracts.replay.step import LoggedStep
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs

Array = np.ndarray


@dataclass(frozen=True)
class LoggedCall:
    """One output of one call, or of a part of the call: what is recorded, followed or judged.

    It is output `out` of the node and section `number` of the log. Its first element is element
    `offset` of the output.
    """

    spec: OpSpec
    out: int
    number: int
    attrs: Attrs
    inputs: Sequence[Array | None]
    outputs: Sequence[Array]
    offset: int = 0


def round_unlogged(x: Array, bits: int, out: Array) -> None:
    """out = R(x), f32 of f64, C-contiguous and of one size; signed zeros are kept (14.9)."""
    entries = np.full(-(-x.size // ENTRIES_PER_BYTE), FIVE_NO_CHANGE, np.uint8)
    _core.published_follow(x, entries, bits, False, out)


class PublishedRecord:
    """A trainer: rounds x, and logs the side of the rounded value on which x lay."""

    def __init__(self, contract: Replay) -> None:
        self._contract = contract
        self._decimal = contract.scale == "decimal"

    def section(self, step: LoggedStep, number: int) -> Array:
        """u8: room for the packed entries of section `number`."""
        return np.empty(step.logged.sections[number].packed_bytes, np.uint8)

    def settle(
        self, step: LoggedStep, call: LoggedCall, x: Array, out: Array, packed: Array
    ) -> None:
        """Give `out` its value, and `packed` its entries (14.9); x (f64) is the stock kernel's
        result."""
        contract = self._contract
        threshold, plus = contract.threshold_of(call.spec.name), self.plus(call)
        _core.published_log(x, threshold, self._decimal, contract.bits, plus, out, packed)

    def plus(self, call: LoggedCall) -> bool:
        """True if a zero of this output is +0 (13.2)."""
        return call.spec.name in self._contract.own_operators

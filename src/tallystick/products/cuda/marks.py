"""How a rounded operator's elements get their values: R alone, or with the entries of a log.

Entries lie on the device as marks: two bits of each element of an output, whether it has an entry
and whether that points up (native/cuda/replay.cu).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tallystick.devices.cuda.launch import whole


@dataclass(frozen=True)
class Marks:
    """The addresses of an output's marks, and of the words that say whose log it is and count
    choices (Marks in replay.cu)."""

    entries: int
    up: int
    control: int

    def slots(self) -> bytes:
        """The slots Marks."""
        return whole(self.entries, self.up, self.control)


@dataclass(frozen=True)
class Rounding:
    """B of NUMERICS 13.2, and the marks of the outputs that have a log (14.2)."""

    bits: int
    marks: Mapping[int, Marks] = field(default_factory=dict)

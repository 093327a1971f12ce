"""One output of one call under the published form: the argument of record, follow and judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs

Array = np.ndarray


@dataclass(frozen=True)
class Call:
    """One output of one call, or of a part of the call.

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

"""REFERENCE: operator name → function of (attributes, inputs) giving its outputs.

Inputs are numpy arrays (None where an optional one is absent); outputs are C-contiguous arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reference.attention import ATTENTION
from reference.dot import DOTS
from reference.elementwise import ELEMENTWISE
from reference.floats import canonical
from reference.image import IMAGE
from reference.losses import LOSSES
from reference.move import MOVE, SCATTER
from reference.nn import NN
from reference.optim import OPTIM
from reference.quantised import QUANTISED
from reference.rand import RANDOM
from reference.sums import SUMS

Reference = Callable[[dict[str, Any], list[Any]], list[np.ndarray]]


def _finished(name: str, f: Callable[[dict[str, Any], list[Any]], Any]) -> Reference:
    """f with special values as ordinary ones, and canonical NaNs (1.5) unless it moves data."""

    def run(attrs: dict[str, Any], inputs: list[Any]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            outputs = [np.asarray(y) for y in f(attrs, inputs)]
        keep = name in MOVE
        # ascontiguousarray makes a 0-d array 1-d
        return [np.array(y if keep else canonical(y), order="C", copy=True) for y in outputs]

    return run


TABLES = (
    DOTS, SUMS, SCATTER, MOVE, NN, IMAGE, LOSSES, RANDOM, ELEMENTWISE, OPTIM, ATTENTION,
    QUANTISED,
)  # fmt: skip
REFERENCE: dict[str, Reference] = {
    name: _finished(name, f) for table in TABLES for name, f in table.items()
}

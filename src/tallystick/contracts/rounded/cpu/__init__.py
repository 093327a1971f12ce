"""The rounded operators: stock binary64 kernels; doubtful elements decided exactly (NUMERICS 13).

Each operator has a generator of pieces, in the modules beside this one. `pieces` defines a piece
and says how `rounded/1` decides it. A rounding log's recorder or follower (NUMERICS 14) decides the
same pieces in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tallystick.contracts.rounded.cpu.pieces import Decide, Piece, exactly
from tallystick.devices.device import Arrays, Kernel, Outputs, Run, replaced
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.registry import rounded_operators
from tallystick.numerics.types import Attrs

# A generator over attributes, inputs and preallocated C-contiguous outputs. The consumer decides
# every piece before it takes the next.
Pieces = Callable[[Attrs, Arrays, Outputs], Iterator[Piece]]

rounded_kernel: Attachments[Pieces] = Attachments(
    "rounded kernel", "tallystick.contracts.rounded.cpu.*"
)


def run_rounded(op: str, decide: Decide, attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
    """Fill the outputs of rounded operator `op`; `decide` decides each piece."""
    for piece in rounded_kernel[op](attrs, inputs, outputs):
        decide(piece)


def with_rounded(ordinary: Mapping[str, Kernel], bits: int) -> Mapping[str, Kernel]:
    """`ordinary` kernels, with those of the rounded operators on the grid of B = `bits`."""
    decide = exactly(bits)

    def rounding(op: str, otherwise: Run) -> Run:
        pieces = rounded_kernel[op]

        def run(attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
            if all(x is None or x.dtype == np.float32 for x in inputs):
                for piece in pieces(attrs, inputs, outputs):
                    decide(piece)
            else:
                otherwise(attrs, inputs, outputs)

        return run

    return replaced(ordinary, rounded_operators(), rounding)

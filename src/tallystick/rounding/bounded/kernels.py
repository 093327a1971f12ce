"""The kernel of a node under the bounded form: the recorder's, or the follower's.

Both decide the pieces of a node's outputs. Where no boundary is near, a piece's value is the
rounded product. For the other elements the recorder writes an entry (`record`), or the follower
takes the followed log's entry or sums exactly (`follow`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallystick.errors import UsageError
from tallystick.kernels.rounded import Piece, run_rounded
from tallystick.kernels.table import Run
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.ir import Node
from tallystick.rounding.blocks import encode
from tallystick.rounding.bounded.follow import Follow
from tallystick.rounding.bounded.record import Record
from tallystick.rounding.sections import LoggedProgram
from tallystick.rounding.step import Step

Array = np.ndarray


class BoundedKernels:
    """The kernels of the nodes that have bounded sections, over the log of the step that runs.

    With `count_taken` a follower sums every entry's element exactly: `Choices.taken` is then exact.
    """

    def __init__(self, logged: LoggedProgram, count_taken: bool = False) -> None:
        self._logged, self._count_taken = logged, count_taken
        self._step: Step | None = None

    def begin(self, step: Step) -> None:
        """Run nodes over the log of `step` from now on."""
        self._step = step

    def end(self) -> None:
        """Run no more nodes."""
        self._step = None

    def kernel(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """How node `index` runs; None where it has no section."""
        numbers = self._logged.numbers_of(index, node)
        if not numbers:
            return None

        def run(attrs: Attrs, inputs: Sequence[Array | None], given: Sequence[Array]) -> None:
            step = self._step
            if step is None:
                raise UsageError("No step is running.", "Call begin(step) first.")
            deciders = {out: self._decider(step, number) for out, number in numbers.items()}

            def decide(piece: Piece) -> None:
                deciders[piece.output].decide(piece)

            run_rounded(node.op, decide, attrs, inputs, given)
            for out, number in numbers.items():
                entries = deciders[out].entries()
                step.sink.bounded(number, encode(self._logged.sections[number], entries))

        return run

    def _decider(self, step: Step, number: int) -> Record | Follow:
        """The object that decides the pieces of section `number`, and then gives its entries."""
        if step.follows:
            return Follow(step, number, self._count_taken)
        return Record(self._logged.contract.bits)

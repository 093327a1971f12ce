"""The kernel of a node under the bounded form: the recorder's, or the follower's.

Both decide the pieces of a node's outputs. Where no boundary is near, a piece's value is the
rounded product. For the other elements the recorder writes an entry (`record`), or the follower
takes the followed log's entry or sums exactly (`follow`).
"""

from __future__ import annotations

from tallystick.contracts.replay.blocks import encode
from tallystick.contracts.replay.bounded.follow import BoundedFollow
from tallystick.contracts.replay.bounded.record import BoundedRecord
from tallystick.contracts.replay.node_kernels import NodeCall, NodeKernels
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import LoggedStep
from tallystick.contracts.rounded.cpu import Piece, run_rounded


class BoundedKernels(NodeKernels):
    """The kernels of the nodes that have bounded sections, over the log of the step that runs.

    With `count_taken` a follower sums every entry's element exactly: `Choices.taken` is then exact.
    """

    def __init__(self, logged: LoggedProgram, count_taken: bool = False) -> None:
        super().__init__(logged)
        self._count_taken = count_taken

    def _run(self, step: LoggedStep, call: NodeCall) -> None:
        deciders = {out: self._decider(step, number) for out, number in call.sections.items()}

        def decide(piece: Piece) -> None:
            deciders[piece.output].decide(piece)

        run_rounded(call.spec.name, decide, call.attrs, call.inputs, call.outputs)
        for out, number in call.sections.items():
            section, entries = self._logged.sections[number], deciders[out].entries()
            step.sink.bounded(number, encode(section, entries))

    def _decider(self, step: LoggedStep, number: int) -> BoundedRecord | BoundedFollow:
        """The object that decides the pieces of section `number`, and then gives its entries."""
        if step.follows:
            return BoundedFollow(step, number, self._count_taken)
        return BoundedRecord(self._logged.contract.bits)

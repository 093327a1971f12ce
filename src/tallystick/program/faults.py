"""Why a node of a program could not be executed: the run's fault, or this machine's."""

from __future__ import annotations

from tallystick.errors import MachineFaultError, UsageError


class NodeError(UsageError):
    """A kernel refused what its operands hold, for example an index out of range.

    Whoever executes the step gets this error: it is a fault of the job or of the run. `node` is
    the node's index, `state_lost` says whether the step had begun to overwrite the state.
    """

    def __init__(self, message: str, next_action: str, node: int, state_lost: bool) -> None:
        super().__init__(message, next_action)
        self.node = node
        self.state_lost = state_lost


class NodeFaultError(MachineFaultError):
    """This machine could not execute a node: no memory, no thread, no disk, an interrupted call.

    `node` and `state_lost` are as in NodeError.
    """

    def __init__(self, message: str, next_action: str, node: int, state_lost: bool) -> None:
        super().__init__(message, next_action)
        self.node = node
        self.state_lost = state_lost

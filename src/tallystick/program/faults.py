"""Errors of a node that could not be executed: the run is at fault, or this machine."""

from __future__ import annotations

from tallystick.errors import MachineFaultError, UsageError


class NodeError(UsageError):
    """A kernel refused the values of its operands, for example an index out of range.

    On every machine the step fails with this error: the job or the run is at fault. `node` is the
    node's index. `state_lost` says whether the step had begun to overwrite the state.
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

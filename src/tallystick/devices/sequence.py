"""Prepared calls of kernels, executed in their order again and again.

A device makes a sequence of the calls of a step (devices/device.py): the processor runs one after
the other, a GPU records them once and starts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

# A kernel, or a copy, with its attributes, inputs and outputs.
Call = tuple[Callable[..., Any], Any, Sequence[Any], Sequence[Any]]


class CallFailedError(Exception):
    """The call at `position` of a sequence raised; the error is the cause of this one."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class Sequenced(Protocol):
    """The calls of a sequence."""

    def run(self) -> None:
        """Run all calls in order. Raises CallFailedError from the error of a call; the calls
        before it have run, and those after it may have run."""


class InTurn:
    """The calls, one after the other."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    def run(self) -> None:
        position = -1
        try:
            # `position` names the call in the handler below.
            for position, (run, attrs, inputs, outputs) in enumerate(self._calls):  # noqa: B007
                run(attrs, inputs, outputs)
        except Exception as error:
            raise CallFailedError(position) from error

"""Prepared calls of kernels, executed in their order again and again.

A device makes a sequence of the calls of a step (devices/device.py). The processor makes those that
are one call of the core each without Python between them, and a GPU records them once and starts
them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from tallystick import _core

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


F = TypeVar("F", bound=Callable[..., Any])
_MARK = "_is_one_call"


def one_call(kernel: F) -> F:
    """Marks a kernel that does nothing but one call of the core, over the memory of its
    operands."""
    setattr(kernel, _MARK, _always)
    return kernel


def one_call_if_contiguous(kernel: F) -> F:
    """Marks a kernel that is `one_call` where its operands are C-contiguous."""
    setattr(kernel, _MARK, _contiguous)
    return kernel


def _always(_inputs: Sequence[Any]) -> bool:
    return True


def _contiguous(inputs: Sequence[Any]) -> bool:
    return all(x is None or x.flags.c_contiguous for x in inputs)


def _never(_inputs: Sequence[Any]) -> bool:
    return False


class RecordedCalls:
    """The calls, one after the other. Neighbours that are marked are recorded, where the core can
    record them (native/bindings/sequence.hpp); the others run as they are."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls  # recorded calls keep no array
        self._parts: list[tuple[int, Call | _core.Sequence]] = []
        for position, call in enumerate(calls):
            self._add(position, call)

    def _add(self, position: int, call: Call) -> None:
        run, attrs, inputs, outputs = call
        if not getattr(run, _MARK, _never)(inputs):
            self._parts.append((position, call))
            return
        last = self._parts[-1][1] if self._parts else None
        sequence = last if isinstance(last, _core.Sequence) else _core.Sequence()
        before = len(sequence)
        with _recording(sequence):
            run(attrs, inputs, outputs)
        if len(sequence) == before:  # the core does not record this one
            self._parts.append((position, call))
        elif sequence is not last:
            self._parts.append((position, sequence))

    def run(self) -> None:
        first, part = 0, None
        try:
            # `first` and `part` name the call in the handler below.
            for first, part in self._parts:  # noqa: B007
                if isinstance(part, _core.Sequence):
                    part.run()
                else:
                    run, attrs, inputs, outputs = part
                    run(attrs, inputs, outputs)
        except Exception as error:
            done = part.done if isinstance(part, _core.Sequence) else 0
            raise CallFailedError(first + done) from error


@contextmanager
def _recording(sequence: _core.Sequence) -> Iterator[None]:
    _core.record(sequence)
    try:
        yield
    finally:
        _core.stop_recording()

"""The base of both forms' kernels: it knows the nodes that have sections and the running step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import LoggedStep
from tallystick.devices.device import Tensor
from tallystick.devices.kernel import Run
from tallystick.errors import UsageError
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.ir import Node


@dataclass(frozen=True)
class NodeCall:
    """A call of a node; `sections` maps an output to its section, where it has one."""

    spec: OpSpec
    sections: dict[int, int]
    attrs: Attrs
    inputs: Sequence[Any]
    outputs: Sequence[Any]


class NodeKernels(ABC):
    """Gives a kernel to each node of `logged` that has sections. A form says what it computes."""

    def __init__(self, logged: LoggedProgram) -> None:
        self._logged = logged
        self._step: LoggedStep | None = None

    def begin(self, step: LoggedStep) -> None:
        """Run nodes over the log of `step` from now on."""
        self._step = step

    def complete(self) -> None:  # noqa: B027 (most nodes write their own)
        """All nodes have run: write those sections that were not written by the nodes."""

    def end(self) -> None:
        """Run no more nodes."""
        self._step = None

    def kernel(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """How node `index` runs; None where it has no section.

        The kernel raises UsageError between steps.
        """
        sections = self._logged.numbers_of(index, node)
        if not sections:
            return None

        def run(attrs: Attrs, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]) -> None:
            if self._step is None:
                raise UsageError("No step is running.", "Call begin(step) first.")
            self._run(self._step, NodeCall(spec, sections, attrs, inputs, outputs))

        return run

    @abstractmethod
    def _run(self, step: LoggedStep, call: NodeCall) -> None:
        """Compute a call, and write its sections."""

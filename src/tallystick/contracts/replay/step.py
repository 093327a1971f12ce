"""The log of one step while the step runs: its sink, its source, and the findings in it; and the
base of both forms' kernels, which know a `LoggedStep`. They know no file and no run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tallystick.commit.log import Section, log_digest, packed_root
from tallystick.contracts.replay.entries import Blocks
from tallystick.contracts.replay.findings import (
    BoundaryChoices,
    Finding,
    Findings,
    Kind,
    LogCorruptError,
)
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.devices.device import Run, Tensor
from tallystick.errors import UsageError
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.ir import Node

Array = np.ndarray


class Sink(Protocol):
    """Takes one step's sections: a file, or a `DigestOnly`."""

    def bounded(self, number: int, section_blocks: Blocks) -> None: ...

    def published(self, number: int, packed: bytes) -> None: ...

    def finish(self) -> bytes: ...

    def discard(self) -> None: ...


class SectionSource(Protocol):
    """Gives the sections of a followed log. Both methods raise LogCorruptError for a section that
    cannot be read."""

    def bounded(self, number: int) -> Blocks: ...

    def published(self, number: int) -> bytes: ...

    def close(self) -> None: ...


class DigestOnly:
    """Keeps no log, only its digest: where steps are repeated and no run is made."""

    def __init__(self, step: int, sections: tuple[Section, ...]) -> None:
        self._step = step
        self._sections = sections
        self._digests: list[bytes | None] = [None] * len(sections)

    def bounded(self, number: int, section_blocks: Blocks) -> None:
        self._digests[number] = self._sections[number].digest(section_blocks.root())

    def published(self, number: int, packed: bytes) -> None:
        self._digests[number] = self._sections[number].digest(packed_root(packed))

    def finish(self) -> bytes:
        found = [digest for digest in self._digests if digest is not None]
        if len(found) != len(self._digests):
            raise UsageError(f"The log of step {self._step} lacks a section.", "Run it whole.")
        return log_digest(self._step, found)

    def discard(self) -> None:
        pass


@dataclass
class LoggedStep:
    """The log of step `number` of `logged`. `sink` takes its sections.

    `follows` chooses the kernel of a node: the follower's, or the recorder's. A follower reads
    `source`. `source` is None where the followed log is missing or damaged, which is a finding.
    """

    number: int
    logged: LoggedProgram
    sink: Sink
    follows: bool = False
    source: SectionSource | None = None
    findings: Findings = field(default_factory=Findings)
    choices: BoundaryChoices = field(default_factory=BoundaryChoices)

    def close(self) -> None:
        """Let go of the log that was followed."""
        if self.source is not None:
            self.source.close()

    # -- findings in the followed log ----------------------------------------------------------

    def report(self, error: LogCorruptError) -> None:
        """Turn a fault of the followed log into a finding."""
        self.findings.add(
            Finding(
                "log", error.step, error.node, error.operator, error.output, detail=error.message
            )
        )

    def found(
        self,
        kind: Kind,
        number: int,
        element: int | None = None,
        direction: int | None = None,
        detail: str = "",
    ) -> None:
        """Add a finding about section `number`."""
        section, operator = self.logged.sections[number], self.logged.operators[number]
        where = (section.node, operator, section.output, element, direction)
        self.findings.add(Finding(kind, self.number, *where, detail))

    def found_entries(
        self, kind: Kind, number: int, positions: Array, directions: Array, detail: str
    ) -> None:
        """Add a finding for each of many entries of section `number`."""
        keep = self.findings.room_for(len(positions))
        for at, direction in zip(
            positions[:keep].tolist(), directions[:keep].tolist(), strict=True
        ):
            self.found(kind, number, at, direction, detail)
        self.findings.count += len(positions) - keep


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

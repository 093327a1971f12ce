"""A session computes the steps of a `replay/1` run, making each step's log as it goes.

What recorders and followers of both forms have in common: which output is which section, the
writer and the log that is followed, step by step. A caller gives `kernels` to the executor and
brackets each step:

    session.begin(step); executor.run_step(..., kernels) ; digest = session.finish()

and `session.discard()` where the step failed. Who follows no log records one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from tallystick.commit.log import FORMS, Section, log_digest, packed_root
from tallystick.errors import UsageError
from tallystick.kernels.table import Run
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import OpSpec
from tallystick.program.ir import Node, Program
from tallystick.rounding.blocks import Blocks
from tallystick.rounding.faults import LogCorruptError
from tallystick.rounding.findings import Choices, Finding, Findings, Kind
from tallystick.rounding.log_reader import Expected, LogReader
from tallystick.rounding.sections import operators_of, sections_of

Array = np.ndarray


class Sink(Protocol):
    """Where one step's sections go: a `LogWriter`, or a `DigestOnly`."""

    def bounded(self, number: int, section_blocks: Blocks) -> None: ...

    def published(self, number: int, packed: bytes) -> None: ...

    def finish(self) -> bytes: ...

    def discard(self) -> None: ...


class DigestOnly:
    """Keeps no log, only its digest: for whoever repeats steps without being a run."""

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


# The log to be followed at a step; it may raise LogCorruptError, which becomes a finding.
LogSource = Callable[[int], LogReader]
# A sink for a step; `LogDirectory.writer` is one.
MakeSink = Callable[[int], Sink]


class Session:
    """Base of recorders and followers; see the module. `source` is None for a recorder.

    A log that is missing or damaged is a finding, and the step goes on as if it had no entry.
    """

    def __init__(
        self, program: Program, sink: MakeSink | None = None, source: LogSource | None = None
    ) -> None:
        self.program = program
        self.contract = find_contract(program.contract)
        if not self.contract.keeps_log:
            raise UsageError(
                f"Contract {program.contract} keeps no rounding log.",
                "Run the program without one.",
            )
        self.form = FORMS[self.contract.form]
        self.sections = sections_of(program, self.contract)
        self.operators = operators_of(program, self.sections)
        self.findings = Findings()
        self.choices = Choices()
        self._numbers = {(s.node, s.output): n for n, s in enumerate(self.sections)}
        self._make_sink = sink or (lambda step: DigestOnly(step, self.sections))
        self._source = source
        self._step: int | None = None
        self._sink: Sink | None = None
        self._reader: LogReader | None = None

    def expected(self, job_digest: bytes) -> Expected:
        """What logs of this program and of the job `job_digest` must be, for their readers."""
        return Expected(job_digest, self.sections, self.operators, self.form)

    # -- a step ----------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that is running. Raises UsageError between steps."""
        if self._step is None:
            raise UsageError("No step of this session is running.", "Call begin(step) first.")
        return self._step

    @property
    def sink(self) -> Sink:
        """Where the running step's sections go."""
        if self._sink is None:
            raise UsageError("No step of this session is running.", "Call begin(step) first.")
        return self._sink

    def begin(self, step: int) -> None:
        """Begin step `step`. Raises StorageError; a fault of the followed log is a finding."""
        self.discard()
        self._step = step
        if self._source is not None:
            try:
                self._reader = self._source(step)
            except LogCorruptError as error:
                self.report(error)
        try:
            self._sink = self._make_sink(step)
        except BaseException:
            self.discard()
            raise

    def finish(self) -> bytes:
        """End the step: the digest of its log (COMMITMENTS 10.5). Raises StorageError."""
        sink = self.sink
        digest = sink.finish()
        self._sink = None
        self.discard()
        return digest

    def discard(self) -> None:
        """Drop what the running step has written; nothing to do between steps."""
        if self._sink is not None:
            self._sink.discard()
        if self._reader is not None:
            self._reader.close()
        self._step = self._sink = self._reader = None

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The executor's hook: how node `index` runs; None where it is the contract's default."""
        raise NotImplementedError

    # -- for recorders and followers -------------------------------------------------------------

    def number_of(self, node: int, output: int) -> int | None:
        """The section of an output, None where it has none."""
        return self._numbers.get((node, output))

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
        """Add a finding about section `number` at the running step."""
        section, operator = self.sections[number], self.operators[number]
        self.findings.add(
            Finding(
                kind, self.step, section.node, operator, section.output, element, direction, detail
            )
        )

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

"""The steps of a `replay/1` run, each computed with a log: `engine.StepLog` for either form.

    logs.begin(step); executor.run_step(..., logs.kernels); digest = logs.finish()

and `logs.abort()` where the step failed. The form's kernels say which kernel runs a node. `_open`
says where a step's log comes from and where it goes; the classes of `run.logs` replace it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tallystick.contracts.replay.bounded.kernels import BoundedKernels
from tallystick.contracts.replay.findings import BoundaryChoices, Findings, LogCorruptError
from tallystick.contracts.replay.published.follow import Corrections
from tallystick.contracts.replay.published.kernels import PublishedKernels
from tallystick.contracts.replay.sections import LoggedProgram, refused_there
from tallystick.contracts.replay.step import (
    DigestOnly,
    LoggedStep,
    NodeKernels,
    SectionSource,
    Sink,
)
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Run, is_cuda
from tallystick.errors import UsageError
from tallystick.numerics.registry import OpSpec
from tallystick.program.ir import Node, Program

if TYPE_CHECKING:
    from tallystick.contracts.replay.stock.stock import Stock
    from tallystick.devices.device import Device

# The log to follow at a step; it may raise LogCorruptError, which becomes a finding.
OpenSource = Callable[[int], SectionSource]
# Where the log of a step goes; `run.logs.writer.LogDirectory.writer` is one.
OpenSink = Callable[[int], Sink]


class LoggedSteps:
    """Steps of `program` that record a log, or follow the logs that `source` gives.

    `sink` takes their own logs; without one only the digest is kept. A missing or damaged log is a
    finding, and the step goes on as if the log had no entry. With `count_taken` a follower of
    bounded logs counts the choices exactly. `stock` holds the kernels of the published form.
    `findings` and `choices` are those of all finished steps.
    """

    def __init__(
        self,
        program: Program,
        source: OpenSource | None = None,
        sink: OpenSink | None = None,
        stock: Stock | None = None,
        count_taken: bool = False,
    ) -> None:
        self.logged = LoggedProgram(program)
        self.findings, self.choices = Findings(), BoundaryChoices()
        self._device, self._count_taken = CPU, count_taken
        self._host: BoundedKernels | PublishedKernels
        if self.logged.contract.form == "bounded":
            self._host = BoundedKernels(self.logged, count_taken)
        else:
            self._host = PublishedKernels(self.logged, stock)
        self.form: NodeKernels = self._host  # of the device
        self._source, self._sink = source, sink or self.digest_only
        self._step: LoggedStep | None = None

    @property
    def corrections(self) -> Corrections:
        """How many elements the entries of followed published logs have changed, by step."""
        assert isinstance(self._host, PublishedKernels)
        return self._host.follow.corrections

    def digest_only(self, step: int) -> Sink:
        """A sink that keeps nothing of the log but its digest."""
        return DigestOnly(step, self.logged.sections)

    # -- a step (run.execute.engine.StepLog) -----------------------------------------------------

    def move_to(self, device: Device) -> None:
        """Give kernels for tensors of `device` from now on. Raises UsageError where there are
        none: published logs have them for torch's devices, bounded ones for a GPU of
        `devices/cuda`. Raises MemoryError."""
        if device in (CPU, self._device):
            return
        host = self._host
        if isinstance(host, BoundedKernels) and is_cuda(device):
            from tallystick.contracts.replay.bounded.resident import BoundedResident

            self.form = BoundedResident(self.logged, device, self._count_taken)
        elif isinstance(host, PublishedKernels) and device.kind == "torch":
            from tallystick.contracts.replay.published.resident import PublishedResident

            self.form = PublishedResident(self.logged, device, host.record, host.follow)
        else:
            raise refused_there(self.logged, device)
        self._device = device

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The executor's hook: how node `index` runs; None where it is the contract's default."""
        return self.form.kernel(index, node, spec)

    def begin(self, step: int) -> None:
        """Begin step `step`. Raises StorageError, and EnvironmentRefusedError where the kernels of
        the form cannot be used; a fault of the followed log is a finding."""
        self.abort()
        self._step = self._open(step)
        try:
            self.form.begin(self._step)
        except BaseException:
            self.abort()
            raise

    def finish(self) -> bytes:
        """End the step: the digest of its log (COMMITMENTS 10.5). Raises StorageError."""
        step = self._step
        if step is None:
            raise UsageError("No step is running.", "Call begin(step) first.")
        self.form.complete()
        digest = step.sink.finish()
        self._let_go(step)
        self.findings.extend(step.findings)
        self.choices.extend(step.choices)
        return self._ended(step, digest)

    def abort(self) -> None:
        """Drop the running step's sections. Between steps it does nothing."""
        step = self._step
        if step is not None:
            step.sink.discard()
            self._let_go(step)

    def _let_go(self, step: LoggedStep) -> None:
        step.close()
        self._step = None
        self.form.end()

    # -- where a step's log comes from and goes to -----------------------------------------------

    def _open(self, step: int) -> LoggedStep:
        """The log of `step`, opened."""
        if self._source is None:
            return self._recorded(step, self._sink(step))
        source, fault = None, None
        try:
            source = self._source(step)
        except LogCorruptError as error:
            fault = error
        made = self._followed(step, source, self._sink)
        if fault is not None:
            made.report(fault)
        return made

    def _recorded(self, step: int, sink: Sink) -> LoggedStep:
        """A step that records to `sink`."""
        return LoggedStep(step, self.logged, sink)

    def _followed(self, step: int, source: SectionSource | None, sink: OpenSink) -> LoggedStep:
        """A step that follows `source`; its own log goes to `sink`."""
        try:
            opened = sink(step)
        except BaseException:
            if source is not None:
                source.close()
            raise
        return LoggedStep(step, self.logged, opened, True, source)

    def _ended(self, step: LoggedStep, digest: bytes) -> bytes:
        """The digest that enters the log chain, of the one that the step's log has."""
        return digest

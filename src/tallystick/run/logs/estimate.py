"""How large the rounding logs of a job will be: before any is written, or by logs of steps that do
not count, which are written, measured and removed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tallystick.commit.log import BOUNDED, Section
from tallystick.contracts.replay.step import LoggedStep
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.contracts.rounded.opening import count_of
from tallystick.disk.files import remove, scratch_directory
from tallystick.disk.regular import size_of
from tallystick.job.job import Job
from tallystick.numerics.contracts import parse_contract
from tallystick.opening.parts import summed
from tallystick.opening.quantity import Site
from tallystick.program.ir import Program
from tallystick.run.logs.reader import keeps_log
from tallystick.run.logs.writer import ENTRY, HEADER, TRAILER, LogDirectory, log_path
from tallystick.run.store.directory import RunStore

# Of elements with K terms of like size about 4·K^1.5·2⁻³⁰ lie within 2E of a boundary (NUMERICS
# 14.4, 14.6, B = 32); cancellation makes it several times as many.
_RATE = 16 * 2.0**-30
_WORD = 2  # bytes of an entry, and of a block's count


def _terms(program: Program, section: Section) -> int:
    """How many terms an element of this output is the sum of (NUMERICS 13.3)."""
    node = program.nodes[section.node]
    types = tuple(None if v is None else program.type_of(v) for v in node.inputs)
    site = Site(node.op, node.attrs, types, node.out_types, section.output, 0, program.contract)
    return count_of(summed(site))


def step_log_bytes(program: Program, sections: Sequence[Section]) -> int:
    """Bytes that one step's log will have, about; uncompressed."""
    total: float = HEADER.size + TRAILER.size + len(sections) * ENTRY.size
    spare = parse_contract(program.contract).bits - 32  # a coarser grid has fewer boundaries
    for section in sections:
        if section.form != BOUNDED:
            total += section.packed_bytes
            continue
        if section.elements == 0:
            continue
        terms = _terms(program, section)
        share = min(1.0, _RATE * 2.0**spare * terms**1.5)
        total += _WORD * (section.blocks + math.ceil(share * section.elements))
    return int(total)


def run_log_bytes(job: Job, store: RunStore | None, sections: Sequence[Section]) -> int:
    """Bytes of all logs of a run of `job`; what there already is of it is the better guess."""
    steps = store.logged_steps() if store is not None else []
    if store is not None and steps:
        return store.log_bytes() * job.steps // len(steps)
    return step_log_bytes(job.program, sections) * job.steps


class ScratchLogs(LoggedSteps):
    """Records logs in the directory `path` and removes them, for an estimate or a benchmark.

    `bytes` are those of the last step's log.
    """

    def __init__(self, job: Job, path: Path) -> None:
        super().__init__(job.program)
        self._path = path
        self._files = LogDirectory(path, job.digest, self.logged.sections, self.logged.form)
        self.bytes = 0

    def _open(self, step: int) -> LoggedStep:
        return self._recorded(step, self._files.writer(step))

    def _ended(self, step: LoggedStep, digest: bytes) -> bytes:
        """The digest of the step's log, which is then removed."""
        path = log_path(self._path, step.number)
        self.bytes = size_of(path, "log")
        remove(path)
        return digest


@contextmanager
def scratch_logs(job: Job) -> Iterator[ScratchLogs | None]:
    """Logs for steps that do not count; None where the job's contract keeps none."""
    if not keeps_log(job):
        yield None
        return
    with scratch_directory() as directory:
        yield ScratchLogs(job, directory)

"""The arms of `bench ovt`: a party's executor under a contract, with its logs.

The arms are `ordered` and `rounded` (contracts without a log), `bounded` and `published` (recorder
or follower of a log), `round` (the published form's kernels, rounded, without a log), and `float32`
(stock float32 kernels). The kinds of hardware are those of `contracts.replay.stock.emulated`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.contracts.replay.findings import UNFIT
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.contracts.replay.stock.emulated import Hardware, kind_named
from tallystick.devices.context import ExecutionContext
from tallystick.errors import CannotCheckError
from tallystick.job.job import Job
from tallystick.numerics.contracts import find_contract
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.run.logs import writer
from tallystick.run.logs.reader import LogReader, expected_of
from tallystick.run.logs.writer import LogDirectory, log_path
from tallystick_bench.ovt.models import under
from tallystick_bench.ovt.parties.party import Arm, Given

if TYPE_CHECKING:  # it loads torch, which the other arms do not need
    from tallystick_bench.ovt.parties.unlogged import Unlogged

# The kinds compared: this machine as it is, another order of sums, the libraries without AVX. (MKL
# takes AVX2 kernels on an AMD processor by itself, so that kind `avx2` adds as `plain` does.)
HARDWARE = ("plain", "split-k", "sse")
PLAIN = HARDWARE[0]


def hardware() -> list[Hardware]:
    """The kinds of hardware that are compared."""
    return [kind_named(name) for name in HARDWARE]


class Plain:
    """A contract whose results need no log, or stock kernels without one."""

    def __init__(self, program: Program, threads: int, unlogged: Unlogged | None = None) -> None:
        self.unlogged = unlogged
        self.executor = Executor(
            program, ExecutionContext(threads), unlogged.kernels if unlogged else None
        )

    def step(self, given: Given, log: Path | None) -> dict[str, Any]:
        """Take the step; see `Arm`."""
        if self.unlogged is not None:
            self.unlogged.begin(given.step)
        result = self.executor.run_step(given.state, given.batch, given.scalars, given.key)
        return {"loss": float("nan" if result.loss is None else result.loss)}

    def close(self) -> None:
        """Nothing is open between steps."""


class Logged:
    """A recorder, or a follower where `step` gets a log. Its own log is a file in `directory`."""

    def __init__(
        self, job: Job, program: Program, kind: Hardware, directory: Path, threads: int,
        follows: bool, compress: bool,
    ) -> None:  # fmt: skip
        logged = LoggedProgram(program)
        self._expected = expected_of(logged, job.digest)
        self._followed: Path | None = None
        codes = writer.ZSTD if compress else writer.RAW
        self.files = LogDirectory(directory, job.digest, logged.sections, logged.form, codes)
        published = logged.contract.form == "published"
        self.steps = LoggedSteps(
            program,
            self._reader if follows else None,
            self.files.writer,
            kind.stock() if published else None,
        )
        self._corrects = published and follows
        self.executor = Executor(program, ExecutionContext(threads), self.steps.kernels)

    def _reader(self, step: int) -> LogReader:
        assert self._followed is not None
        return LogReader(self._followed, step, self._expected)

    def step(self, given: Given, log: Path | None) -> dict[str, Any]:
        """Take the step; see `Arm`.

        Raises CannotCheckError for a finding against an honest log, which would be a fault of ours,
        but for the published form's unfit entries (NUMERICS 14.9.2).
        """
        self._followed, steps = log, self.steps
        left, taken = steps.choices.left, steps.choices.taken
        findings = steps.findings.count
        steps.begin(given.step)
        result = self.executor.run_step(given.state, given.batch, given.scalars, given.key)
        steps.finish()
        for finding in steps.findings.kept:
            if finding.kind != UNFIT:
                raise CannotCheckError(f"A follower blamed an honest log: {finding}", "Report it.")
        path = log_path(self.files.path, given.step)
        found: dict[str, Any] = {
            "loss": float("nan" if result.loss is None else result.loss),
            "log": str(path),
            "log_bytes": path.stat().st_size,
            "left": steps.choices.left - left,
            "taken": steps.choices.taken - taken,
            "findings": steps.findings.count - findings,
        }
        if self._corrects:
            found["forward"] = steps.corrections.forward[-1]
            found["backward"] = steps.corrections.backward[-1]
        return found

    def close(self) -> None:
        """Drop the files of an unfinished step."""
        self.steps.abort()


def open_arm(
    arm: str,
    contract: str | None,
    job: Job,
    kind: Hardware,
    follows: bool,
    directory: Path,
    threads: int,
    compress: bool = False,
) -> Arm:
    """The arm called `arm` under `contract` on a kind of hardware; a follower if `follows`.

    Logs go to `directory`, compressed if `compress`.
    """
    if contract is None:
        from tallystick_bench.ovt.parties.unlogged import Float32, Unlogged

        stock = kind.stock()
        stock = Float32(order=stock.order) if arm == "float32" else stock
        return Plain(job.program, threads, Unlogged(job.program, stock))
    program = under(job, contract)
    if find_contract(contract).keeps_log:
        return Logged(job, program, kind, directory, threads, follows, compress)
    return Plain(program, threads)

"""The arms of `bench ovt`: a party's executor under a contract, with its session.

The arms are `ordered` and `rounded` (contracts without a log), `bounded` and `published` (recorder
or follower of a log), `round` (the published form's kernels, rounded, without a log), and `float32`
(stock float32 kernels). The kinds of hardware are those of `rounding.emulated`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.errors import CannotCheckError
from tallystick.job.job import Job
from tallystick.kernels.context import ExecutionContext
from tallystick.kernels.stock.emulated import Kind, kind_named
from tallystick.numerics.contracts import find_contract
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.rounding import codec
from tallystick.rounding.bounded import BoundedFollower, BoundedRecorder
from tallystick.rounding.log_file import LogDirectory, log_path
from tallystick.rounding.log_reader import LogReader
from tallystick.rounding.published import PublishedFollower, PublishedRecorder
from tallystick.rounding.session import Session, Sink
from tallystick_bench.ovt.models import under
from tallystick_bench.ovt.parties.party import Arm, Given

if TYPE_CHECKING:  # it loads torch, which the other arms do not need
    from tallystick_bench.ovt.parties.unlogged import Unlogged

# The kinds compared: this machine as it is, another order of sums, the libraries without AVX. (MKL
# takes AVX2 kernels on an AMD processor by itself, so that kind `avx2` adds as `plain` does.)
HARDWARE = ("plain", "split-k", "sse")
PLAIN = HARDWARE[0]


def hardware() -> list[Kind]:
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
        self, job: Job, program: Program, kind: Kind, directory: Path, threads: int, follows: bool,
        compress: bool,
    ) -> None:  # fmt: skip
        self.job_digest = job.digest
        self._followed: Path | None = None
        self.session = self._session(program, kind, follows)
        self.logs = LogDirectory(
            directory,
            job.digest,
            self.session.sections,
            self.session.form,
            codec.ZSTD if compress else codec.RAW,
        )
        self.executor = Executor(program, ExecutionContext(threads), self.session.kernels)

    def _writer(self, step: int) -> Sink:
        return self.logs.writer(step)

    def _reader(self, step: int) -> LogReader:
        assert self._followed is not None
        return LogReader(self._followed, step, self.session.expected(self.job_digest))

    def _session(self, program: Program, kind: Kind, follows: bool) -> Session:
        """The recorder or follower of the contract's form."""
        if find_contract(program.contract).form == "bounded":
            if follows:
                return BoundedFollower(program, self._reader, self._writer)
            return BoundedRecorder(program, self._writer)
        if follows:
            return PublishedFollower(program, self._reader, self._writer, kind.stock())
        return PublishedRecorder(program, self._writer, kind.stock())

    def step(self, given: Given, log: Path | None) -> dict[str, Any]:
        """Take the step; see `Arm`.

        Raises CannotCheckError for a finding against an honest log, which would be a fault of ours.
        """
        self._followed, session = log, self.session
        left, taken = session.choices.left, session.choices.taken
        session.begin(given.step)
        result = self.executor.run_step(given.state, given.batch, given.scalars, given.key)
        session.finish()
        if session.findings:
            raise CannotCheckError(
                f"A follower blamed an honest log: {session.findings.kept[0]}", "Report it."
            )
        path = log_path(self.logs.path, given.step)
        found: dict[str, Any] = {
            "loss": float("nan" if result.loss is None else result.loss),
            "log": str(path),
            "log_bytes": path.stat().st_size,
            "left": session.choices.left - left,
            "taken": session.choices.taken - taken,
        }
        if isinstance(session, PublishedFollower):
            found["forward"] = session.corrections.forward[-1]
            found["backward"] = session.corrections.backward[-1]
        return found

    def close(self) -> None:
        """Drop the files of an unfinished step."""
        self.session.discard()


def open_arm(
    arm: str,
    contract: str | None,
    job: Job,
    kind: Kind,
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

"""A finished run, as a claim names it: its commitment and the files that were exported from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.signing import PublicKey, RunCommitment
from tallystick.commit.statement import FILE, STATE_ROOT, Subject
from tallystick.disk.digests import file_digest
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.protocol.statement import run_statement, run_subjects
from tallystick.run.store.claim import Claim, read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import LAST, Which, verify_model


@dataclass(frozen=True)
class StatedRun:
    """A finished run whose commitment has been verified, and not repeated (CLAIMS 2.3).

    `files` are exports that are, byte for byte, those of the run.
    """

    store: RunStore
    job: Job
    claim: Claim
    files: tuple[Subject, ...] = ()

    @property
    def commitment(self) -> bytes:
        """The bytes of the commitment's file."""
        return self.claim.file

    @property
    def run(self) -> RunCommitment:
        return self.claim.commitment

    @property
    def subjects(self) -> list[Subject]:
        """CLAIMS 2.1."""
        return [*run_subjects(self.commitment, self.run), *self.files]

    def payload(self) -> bytes:
        """The claim about the run (CLAIMS 2)."""
        contract = self.job.commitment.contract
        return run_statement(contract, self.commitment, files=self.files)


def stated_run(
    directory: Path,
    models: Sequence[Path] = (),
    trust: Sequence[PublicKey] | None = None,
    which: Which = LAST,
) -> StatedRun:
    """The run in `directory`, and the exported files `models` compared with it.

    Raises the errors of `read_claim` and of `verify_model`, and UsageError for a directory that is
    no run, and where `which` says something of files and there are none.
    """
    if which != LAST and not models:
        raise UsageError(
            "Averaged and best weights describe exported files, and no file is given.",
            "Give --model FILE (`models` in Python), or leave out --ema and --best.",
        )
    store = RunStore(directory)
    store.require()
    job = store.job()
    claim = read_claim(store, job, trust)
    files = []
    for path in models:
        report = verify_model(path, directory, trust, which)
        digests = {FILE: file_digest(path, "model file"), STATE_ROOT: report.state_root}
        files.append(Subject(path.name, digests))
    return StatedRun(store, job, claim, tuple(files))

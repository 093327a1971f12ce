"""A finished run in claims: its commitment and exported files; and its SLSA provenance, which says
what was built, of what, and by whose word (CLAIMS 6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.encoding import JsonValue
from tallystick.commit.signed import (
    CLAIMS,
    FILE,
    JOB,
    STATE_ROOT,
    Subject,
    claim_type,
    statement_payload,
)
from tallystick.commit.signing import PublicKey, RunCommitment
from tallystick.disk.manifest import file_digest
from tallystick.errors import UsageError
from tallystick.installed import tallystick_version
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


PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = claim_type("training")

# RFC 3986 with a scheme and something after it; an address of IPv6 is the only use of brackets.
_CHARACTER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})"
_URI = re.compile(
    rf"[A-Za-z][A-Za-z0-9+.-]*:(?://\[[0-9A-Fa-f:.]+\])?{_CHARACTER}+"
    rf"(?:\?(?:\?|{_CHARACTER})*)?(?:#(?:\?|{_CHARACTER})*)?"
)


def job_files(found: StatedRun) -> list[Subject]:
    """The files that make up the job, whose bytes are checked here (CLAIMS 6.2).

    Raises the errors of `Job.verify`.
    """
    found.job.verify()
    place = found.store.job_path
    return [
        Subject(f"job/{name}", {FILE: file_digest(place / name, "file of the job", place)})
        for name in sorted(found.job.files())
    ]


def provenance_payload(found: StatedRun, signer: PublicKey, builder: str | None = None) -> bytes:
    """The claim that the run `found` came of its job. `signer` is the key that will sign it.

    `builder` is a URI for whoever ran the training; without it the signer's key id names them.
    Raises UsageError where `builder` is no URI, and the errors of `job_files`.
    """
    if builder is not None and not _URI.fullmatch(builder):
        raise UsageError(
            f"{builder[:80]!r} is not a URI.", "Give one such as https://example.org/team."
        )
    digests: dict[str, JsonValue] = {JOB: found.job.digest.hex()}
    dependencies: list[JsonValue] = [{"digest": digests, "name": "job"}]
    dependencies += [one.as_json() for one in job_files(found)]
    predicate: dict[str, JsonValue] = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "contract": found.job.commitment.contract,
                "job_digest": found.job.digest.hex(),
            },
            "internalParameters": _machine(found),
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {
                "id": builder or f"{CLAIMS}signer/{signer.key_id}",
                "version": {"tallystick": tallystick_version()},
            },
            "metadata": {"invocationId": found.run.run_root.hex()},
        },
    }
    return statement_payload(PROVENANCE_TYPE, found.subjects, predicate)


def _machine(found: StatedRun) -> dict[str, JsonValue]:
    """What the journal's last session says of the machine; it changed no bit."""
    sessions = found.claim.journal.sessions
    last: Mapping[str, object] = sessions[-1] if sessions else {}
    return {
        "isa": str(last.get("isa", "")),
        "threads": _count(last.get("threads")),
        "workers": _count(last.get("workers")),
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) else 1

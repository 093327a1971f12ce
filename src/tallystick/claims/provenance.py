"""A run as SLSA provenance: what was built, of what, and by whose word (CLAIMS 6)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tallystick.claims.runs import StatedRun
from tallystick.commit.encoding import JsonValue
from tallystick.commit.signing import PublicKey
from tallystick.commit.statement import CLAIMS, FILE, JOB, Subject, claim_type, statement_payload
from tallystick.disk.digests import file_digest
from tallystick.errors import UsageError
from tallystick.installed import tallystick_version

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

"""The unchanged tools of others that read our claims, run in processes of their own.

`make claim-tools` installs them into build/claim-tools, beside the environment and not into it: so
no version of theirs replaces one of ours. TALLYSTICK_CLAIM_TOOLS names another such directory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tallystick.commit.signing import PublicKey

PLACE = Path(
    os.environ.get("TALLYSTICK_CLAIM_TOOLS")
    or Path(__file__).resolve().parents[1] / "build" / "claim-tools"
)

# Appended: what the environment has too is taken from the environment.
_START = "import sys; sys.path.append({place!r})\n"


# Verifies an envelope by securesystemslib, then reads the payload by in-toto-attestation.
_READ = """
import hashlib, json, sys
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement
import in_toto_attestation.v1.statement_pb2 as pb
raw = sys.argv[2]
keyid = hashlib.sha256(bytes.fromhex(raw)).hexdigest()
key = SSlibKey(keyid, "ed25519", "ed25519", {"public": raw})
envelope = Envelope.from_dict(json.load(open(sys.argv[1])))
envelope.verify([key], 1)
assert envelope.payload_type == "application/vnd.in-toto+json"
statement = Statement.copy_from_pb(json_format.Parse(envelope.payload, pb.Statement()))
statement.validate()
subjects = [[one.name, dict(one.digest)] for one in statement.pb.subject]
print(json.dumps([statement.pb.predicate_type, subjects]))
"""


def needs(package: str) -> None:
    """Skip the test where the tool is not installed."""
    if not (PLACE / package).is_dir():
        pytest.skip(f"{package} is not in {PLACE}: run `make claim-tools`")


def python(code: str, *arguments: object, cwd: Path | None = None) -> str:
    """What `code` prints that may import the tools; it must end with exit code 0."""
    done = tried(code, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tried(
    code: str, *arguments: object, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """As `python`, with whatever exit code."""
    start = _START.format(place=str(PLACE))
    return subprocess.run(
        [sys.executable, "-c", start + code, *map(str, arguments)],
        capture_output=True, text=True, timeout=300, cwd=cwd,
    )  # fmt: skip


def read_by_others(claim: Path, key: PublicKey) -> tuple[str, list[list[Any]]]:
    """The type and the subjects of a claim, as other tools read it that know `key` alone."""
    kind, subjects = json.loads(python(_READ, claim, key.raw.hex()))
    return kind, subjects


def refused_by_others(claim: Path, key: PublicKey) -> bool:
    """Whether `key` has not signed it, as securesystemslib says."""
    done = tried(_READ, claim, key.raw.hex())
    return done.returncode != 0 and "VerificationError" in done.stderr

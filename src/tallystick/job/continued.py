"""The file that proves which run a job continues (COMMITMENTS 7.6.8): written, read and checked.

continues.json    the signed run commitment of the run that goes on, and the proof that its
                  final state is the job's initial one
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from tallystick.commit.checkpoint import ContinuationProof, ContinuedRun
from tallystick.commit.members import Members
from tallystick.commit.signing import Envelope, RunCommitment, verify_run
from tallystick.commit.state import CHAIN_START
from tallystick.disk.manifest import load_manifest, manifest_bytes
from tallystick.errors import CorruptFileError, DigestMismatchError
from tallystick.limits import LIMITS

CONTINUES = "continues.json"
_FORMAT = "tallystick-continues/1"


def continuation_file(envelope: bytes, proof: ContinuationProof) -> bytes:
    """The file's bytes; `envelope` are those of the signed run commitment."""
    return manifest_bytes(
        {
            "commitment": envelope.decode("ascii"),
            "format": _FORMAT,
            "hashes": [h.hex() for h in proof.hashes],
            "log_chain": proof.log_chain.hex(),
            "loss_chain": proof.loss_chain.hex(),
        }
    )


def _malformed(path: Path, why: str) -> NoReturn:
    raise CorruptFileError(
        f"{path} is malformed: {why}.", "Get an intact copy of the job from its author."
    )


def read_continuation(
    path: Path, continues: bytes, slots: Sequence[str], genesis_root: bytes
) -> RunCommitment:
    """The signed commitment of the run that a job continues, after every check of 7.6.8.

    `slots` are those of the job's programs. Raises StorageError, CorruptFileError,
    SignatureInvalidError, and DigestMismatchError where it is another run, or where that run's
    final state is not the job's initial one.
    """
    found = Members(
        load_manifest(path, "proof of continuation", _FORMAT), partial(_malformed, path)
    )
    found.only("commitment", "format", "hashes", "log_chain", "loss_chain")
    envelope = Envelope.from_bytes(
        found.of("commitment", str).encode("utf-8"), LIMITS.commitment_bytes
    )
    run = verify_run(envelope)[0]
    size = len(CHAIN_START)
    hashes = tuple(found.hex_of(h, "hashes") for h in found.of("hashes", list))
    proof = ContinuationProof(found.hex("loss_chain", size), found.hex("log_chain", size), hashes)
    if continued_run(run).digest() != continues:
        raise DigestMismatchError(
            f"{path} is from another run than the one that the job continues.",
            "Get an intact copy of the job from its author.",
        )
    if not proof.proves(slots, run.final_state_root, genesis_root):
        raise DigestMismatchError(
            f"The job does not start from the final state of the run that {path} names.",
            "Do not use the job. Its author names a run that it does not continue.",
        )
    return run


def continued_run(run: RunCommitment) -> ContinuedRun:
    """The run as the continuing job's commitment names it."""
    return ContinuedRun(run.job_digest, run.run_root, run.final_step, run.final_state_root)

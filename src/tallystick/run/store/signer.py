"""The signature under a run, and the key that signs where the user gives none.

In a dispute the prover signs its answers with the key of the run's commitment (PROTOCOL 2.5).
Where the user gives no key, the trainer makes one, which stays in the run directory, mode 0600.
The trainer never copies a given key there. Any person who has the file can answer in the run's
name, so it does not belong in a copy for others.
"""

from __future__ import annotations

from pathlib import Path

from tallystick.commit.checkpoint import run_root
from tallystick.commit.signing import PrivateKey, PublicKey, RunCommitment
from tallystick.commit.signing import sign_run as sign_commitment
from tallystick.disk.files import remove_file, write_file
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import present, read_file
from tallystick.errors import CorruptFileError, DigestMismatchError, TallystickError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal


def sign(store: RunStore, job: Job, journal: Journal, key: PrivateKey | None) -> str:
    """Write the signed run commitment of a finished run; return the signer's key id.

    Without `key`, the key in the run directory signs. The function makes that key if there is
    none.
    """
    content = journal.content
    if key is None:
        signer = _own_key(store.signer_path)
    else:
        signer = key
        remove_file(store.signer_path)  # of an earlier attempt without --key
    step, root = content.checkpoints[-1]
    commitment = RunCommitment(
        job_digest=job.digest,
        run_root=run_root(job.digest, content.checkpoints),
        final_step=step,
        final_state_root=root,
        checkpoints=len(content.checkpoints),
        signer=signer.public,
    )
    write_file(store.commitment_path, [sign_commitment(signer, commitment).to_bytes()])
    return signer.public.key_id


def _own_key(path: Path) -> PrivateKey:
    """The key in the run directory. If there is none, make one and write it durably first."""
    if present(path):
        return read_own_key(path)
    key = PrivateKey.generate()
    write_file(path, [key.pem()], mode=0o600)
    return key


def read_own_key(path: Path) -> PrivateKey:
    """Read the key that write_file wrote to `path`; every byte must be as written. Raises
    CannotCheckError."""
    key = load_private_key(path, path.parent)
    if read_file(path, LIMITS.key_file_bytes, "signer's key", path.parent) != key.pem():
        raise CorruptFileError(f"The signer's key {path} was altered.", "Restore it from a copy.")
    return key


def check_own_key(path: Path, signer: PublicKey | None) -> None:
    """Raise unless the key at `path` is intact and, where the run is signed, has signed it."""
    if read_own_key(path).public != signer and signer is not None:
        raise DigestMismatchError(
            f"The key {path} is not the one that signed the run.",
            "Restore the right key. Without it, the run cannot answer in a dispute.",
        )


def signing_key(store: RunStore, signer: PublicKey, key: PrivateKey | None) -> PrivateKey:
    """The private key of `signer`: the given key, or the run's own.

    Raises UsageError where there is no key, or where the key is not the signer's.
    """
    if key is None:
        if not present(store.signer_path):
            raise UsageError(
                f"The key that signed {store.directory} is not stored in it.",
                "Pass the signer's private key.",
            )
        key = read_own_key(store.signer_path)
    if key.public != signer:
        raise UsageError(
            f"This key is not the one that signed {store.directory}.",
            f"Pass the private key of {signer.key_id[:16]}...",
        )
    return key


def signed_already(store: RunStore) -> str:
    """The signer's key id; empty while the run is not signed."""
    try:
        envelope = store.envelope()
    except TallystickError:
        return ""
    return envelope.signatures[0].key_id if envelope and envelope.signatures else ""

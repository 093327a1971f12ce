"""Key files in PEM. A private one has mode 0600 and is never overwritten (COMMITMENTS 9.1)."""

from __future__ import annotations

from pathlib import Path

from tallystick.commit.p256 import P256Key, p256_key_of
from tallystick.commit.signing import PrivateKey, PublicKey, private_key_of, public_key_of
from tallystick.disk.files import create_new
from tallystick.disk.regular import read_file
from tallystick.errors import CannotCheckError, CorruptFileError, StorageError
from tallystick.limits import LIMITS


def save_private_key(key: PrivateKey | P256Key, path: Path) -> None:
    """Write PKCS #8 PEM with mode 0600; never overwrites. Raises StorageError."""
    try:
        create_new(path, key.pem(), 0o600)
    except FileExistsError:
        raise StorageError(
            f"{path} exists and is not overwritten.",
            "Choose another name for the key.",
        ) from None
    except OSError as error:
        raise StorageError(
            f"The key cannot be written to {path}: {error.strerror}.",
            "Choose a directory you can write to.",
        ) from None


def load_private_key(path: Path, inside: Path | None = None) -> PrivateKey:
    """Load a key of `save_private_key`. A run's key is read inside the run's directory.

    Raises CannotCheckError with the next action.
    """
    return private_key_of(_read(path, inside), str(path))


def load_public_key(path: Path) -> PublicKey:
    """Load a public key from PEM, or the public half of a private key file.

    Raises CannotCheckError.
    """
    return public_key_of(_read(path, None), str(path))


def load_p256_key(path: Path) -> P256Key:
    """Load a P-256 key of `save_private_key` (CLAIMS 7.1). Raises CannotCheckError."""
    return p256_key_of(_read(path, None), str(path))


def _read(path: Path, inside: Path | None) -> bytes:
    try:
        return read_file(path, LIMITS.key_file_bytes, "key file", inside)
    except CorruptFileError as error:  # the caller chose this key: no party is at fault yet
        raise CannotCheckError(error.message, "Check the file's name.") from None

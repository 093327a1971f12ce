"""Files that belong to this user alone: keys in PEM, and directories that no other party may write.

A private key has mode 0600 and is never overwritten (COMMITMENTS 9.1).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tallystick.commit.p256 import P256Key, p256_key_of
from tallystick.commit.signing import PrivateKey, PublicKey, private_key_of, public_key_of
from tallystick.disk.files import create_new
from tallystick.disk.regular import is_directory, os_errors, present, read_file
from tallystick.errors import CannotCheckError, CorruptFileError, StorageError, UsageError
from tallystick.limits import LIMITS


def private_directory(path: Path) -> None:
    """Make `path`, with mode 0700, or find it there, this user's own and writable for nobody else.

    Raises UsageError for a directory that others own or may write, StorageError.
    """
    with os_errors(path):
        if not present(path):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_directory(path):
            raise UsageError(f"{path} is a file, not a directory.", "Name a directory.")
        _require_own(path, os.stat(path))


def require_own(path: Path) -> None:
    """Raise UsageError unless the file `path` is this user's own, writable for nobody else, and no
    link. Raises StorageError."""
    with os_errors(path):
        found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(f"{path} is not a regular file.", "Remove it.")
    _require_own(path, found)


def _require_own(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to another user.", "Choose a directory of your own.")
    if found.st_mode & 0o022:
        raise UsageError(
            f"Other users can write to {path}.",
            "Choose another directory, or remove their permission (chmod go-w).",
        )


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

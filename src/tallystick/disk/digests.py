"""The SHA-256 of whole files, as any other tool computes it, and the files below a directory."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

from tallystick.disk.regular import entries, open_file, os_errors, refuse_kind
from tallystick.errors import CorruptFileError

_PIECE = 1 << 20
_DEPTH = 32  # directories in directories


def file_digest(path: Path, what: str = "file", inside: Path | None = None) -> bytes:
    """The SHA-256 of the regular file at `path`, read piece by piece.

    Raises as `open_regular`, and CorruptFileError where the file changes its size meanwhile.
    """
    file, size = open_file(path, what, inside)
    found, read = hashlib.sha256(), 0
    with os_errors(path), file:
        while piece := file.read(_PIECE):
            found.update(piece)
            read += len(piece)
    if read != size:
        raise CorruptFileError(
            f"The {what} {path} changed while it was read. It had {size} bytes.",
            "Try again when no process writes it.",
        )
    return found.digest()


def files_below(directory: Path, left_out: frozenset[str] = frozenset()) -> list[str]:
    """The regular files below `directory`, as paths relative to it with `/`, in ascending order of
    their parts. What `left_out` names, at the top, is passed over.

    Raises CorruptFileError for a link and for whatever else is no file and no directory.
    """
    found = list(_below(directory, "", left_out, _DEPTH))
    return sorted(found, key=lambda name: name.split("/"))


def _below(root: Path, prefix: str, left_out: frozenset[str], depth: int) -> Iterator[str]:
    if depth == 0:
        raise CorruptFileError(
            f"{root} contains directories that are nested too deeply.", "Use a flatter directory."
        )
    for entry in entries(root / prefix if prefix else root, root if prefix else None):
        name = prefix + entry.name
        if name in left_out:
            continue
        if stat.S_ISDIR(entry.mode):
            yield from _below(root, f"{name}/", left_out, depth - 1)
        elif stat.S_ISREG(entry.mode):
            yield name
        else:
            refuse_kind(root / name, "file", entry.mode)

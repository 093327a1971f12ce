"""Directories with a manifest: digests over files, and how a directory is written anew.

A *manifest* is canonical JSON whose last word binds all the others.
A manifest is for people and for finding files; what it says about the computation is bound by
the job digest. The self-digest is there so that no byte of it can rot unnoticed.

A directory of one kind (a job, a frozen data set) is whole when its manifest is there, which is
written last. To overwrite one, the new one is written beside it and takes its name when it is
whole. So a command that fails or is killed leaves the old one as it was; but where it is killed
between the two renames, the old one lies beside its place, as `.NAME.old-…`.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.encoding import JsonValue, Writer, canonical_json, parse_canonical_json, tag
from tallystick.disk.files import new_directory, remove_tree, sync_path
from tallystick.disk.regular import (
    entries,
    is_directory,
    names,
    open_file,
    os_errors,
    present,
    read_file,
    refuse_kind,
)
from tallystick.errors import (
    CorruptFileError,
    DigestMismatchError,
    UnsupportedVersionError,
    UsageError,
)
from tallystick.limits import LIMITS

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


MANIFEST_TAG = tag("manifest/1")
DIGEST_KEY = "manifest_digest"

Manifest = dict[str, JsonValue]


def manifest_digest(body: Manifest) -> str:
    """Hexadecimal self-digest of a manifest without its digest member."""
    return Writer(MANIFEST_TAG).blob(canonical_json(body)).digest().hex()


def manifest_bytes(body: Manifest) -> bytes:
    """The file: `body` with its self-digest, canonical."""
    return canonical_json({**body, DIGEST_KEY: manifest_digest(body)})


def load_manifest(path: Path, what: str, *kinds: str) -> Manifest:
    """The manifest at `path` without its digest member. Raises StorageError, and as
    `read_manifest`."""
    data = read_file(path, LIMITS.manifest_bytes, what, path.parent)
    return read_manifest(data, path, what, *kinds)


def read_manifest(data: bytes, path: Path, what: str, *kinds: str) -> Manifest:
    """The manifest in `data`, called `path`, without its digest member.

    Raises CorruptFileError, DigestMismatchError, and UnsupportedVersionError when its `format` is
    none of `kinds`, which are versions of one format (as `tallystick-job/1`).
    """
    value = parse_canonical_json(data, f"{what} {path}")
    if not isinstance(value, dict):
        raise CorruptFileError(
            f"The {what} {path} is not a JSON object.", "Restore it from an intact copy."
        )
    form = value.get("format")
    if form not in kinds:
        family, known = kinds[0].rsplit("/", 1)[0], " and ".join(map(repr, kinds))
        if isinstance(form, str) and form.startswith(family + "/"):
            raise UnsupportedVersionError(
                f"The {what} {path} has format {form[:80]!r}, but this build knows {known}.",
                "Use a build of Tallystick that knows this format.",
            )
        raise CorruptFileError(
            f"{path} is not a {what}.", f"Name a directory that contains a {kinds[0]} file."
        )
    claimed = value.pop(DIGEST_KEY, None)
    if claimed != manifest_digest(value):
        raise DigestMismatchError(
            f"The {what} {path} was altered: it does not match its own digest.",
            "Restore it from an intact copy.",
        )
    return value


@dataclass(frozen=True)
class DirectoryKind:
    """A kind of directory: its name in a sentence, the file that comes last, and the names that its
    writer gives: those at its top, and DIRECTORY/NAME in a directory there."""

    words: str
    manifest: str
    is_own: Callable[[str], bool]


def refuse_taken(directory: Path, kind: DirectoryKind) -> None:
    """Raise UsageError where `directory` has one of `kind` already."""
    if present(directory / kind.manifest):
        raise UsageError(
            f"{directory} already contains a {kind.words}.",
            "Choose another directory, or pass --overwrite.",
        )


def refuse_strangers(directory: Path, is_own: Callable[[str], bool]) -> None:
    """Raise UsageError where `directory`, about to be removed, holds files of another writer."""
    found = names(directory)
    for name in found[:]:
        below = directory / name
        if is_directory(below) and not below.is_symlink():
            found += [f"{name}/{inside}" for inside in names(below)]
    others = [name for name in found if not is_own(name)]
    if others:
        raise UsageError(
            f"{directory} also contains other files ({min(others)}), which would be lost.",
            "Move them away, or choose another directory.",
        )


@contextmanager
def written_anew(directory: Path, kind: DirectoryKind, overwrite: bool) -> Iterator[Path]:
    """The directory to write into, so that a new one of `kind` stands at `directory` afterwards.

    One that is there already is refused without `overwrite`. With it, the yielded directory is
    beside it and is swapped in at the end. Raises UsageError, StorageError.
    """
    if not (overwrite and present(directory / kind.manifest)):
        refuse_taken(directory, kind)
        yield directory
        return
    with os_errors(directory):
        target = directory.resolve(strict=True)  # a link keeps its place
    refuse_strangers(target, kind.is_own)
    beside = new_directory(f".{target.name}.new-", target.parent)
    try:
        with os_errors(beside):
            os.chmod(beside, os.stat(target).st_mode & 0o777)
        yield beside
        old = new_directory(f".{target.name}.old-", target.parent)
        with os_errors(target):
            os.rename(target, old)  # an empty directory may be renamed over
            try:
                os.rename(beside, target)
            except OSError:
                os.rename(old, target)
                raise
        sync_path(target.parent)
    finally:
        if is_directory(beside):
            remove_tree(beside)
    remove_tree(old)

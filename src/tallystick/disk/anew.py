"""Writing a directory anew: the place for a new one, and the swap with the one that is there.

A directory of one kind (a job, a frozen data set) is whole when its manifest is there, which is
written last. To overwrite one, the new one is written beside it and takes its name when it is
whole. So a command that fails or is killed leaves the old one as it was; but where it is killed
between the two renames, the old one lies beside its place, as `.NAME.old-…`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallystick.disk.files import new_directory, remove_tree, sync_path
from tallystick.disk.regular import is_directory, names, os_errors, present
from tallystick.errors import UsageError


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

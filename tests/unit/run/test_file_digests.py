"""The SHA-256 of files, and which files lie below a directory (CLAIMS 1.4, 7.4)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tallystick.disk.manifest import file_digest, files_below
from tallystick.errors import CorruptFileError, StorageError


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_the_digest_is_that_of_all_bytes(tmp_path: Path, size: int) -> None:
    path, data = tmp_path / "file", os.urandom(size)
    path.write_bytes(data)
    assert file_digest(path) == hashlib.sha256(data).digest()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        file_digest(tmp_path / "missing")
    with pytest.raises(CorruptFileError):
        file_digest(tmp_path)


def test_the_order_is_that_of_the_parts(tmp_path: Path) -> None:
    """`a.b` stands before `a/b` as text, and behind it by parts."""
    for name in ("a/b", "a.b", "a/c/d", "Z", ".git/config", "a/.git"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert files_below(tmp_path, frozenset({".git"})) == ["Z", "a/.git", "a/b", "a/c/d", "a.b"]


@pytest.mark.parametrize("name", ["link", "sub/link"])
def test_links_and_pipes_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / name).symlink_to(tmp_path / "file")
    with pytest.raises(CorruptFileError):
        files_below(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(CorruptFileError):
        files_below(tmp_path)


def test_directories_in_directories_end(tmp_path: Path) -> None:
    place = tmp_path
    for _ in range(33):
        place = place / "d"
        place.mkdir()
    with pytest.raises(CorruptFileError, match="deep"):
        files_below(tmp_path)

"""Tensor files, manifests and durable writes: canonical, bounded, refused with a sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.disk.files import clone_or_copy, write_file
from tallystick.disk.manifest import load_manifest, manifest_bytes
from tallystick.disk.regular import read_file
from tallystick.disk.tensorfile import file_size, read_tensors, write_tensors
from tallystick.errors import (
    CorruptFileError,
    CounterpartyError,
    DigestMismatchError,
    StorageError,
    UnsupportedVersionError,
)

TENSORS = {
    "b": np.arange(6, dtype="<f4").reshape(2, 3),
    "a.wide": np.array(1.5, dtype="<f8"),
    "empty": np.zeros((0, 4), dtype="<f4"),
    "flags": np.array([True, False, True]),
    "ids": np.array([[1, -2]], dtype="<i8"),
    "small": np.array([7], dtype="<i4"),
    "bytes": np.arange(5, dtype="u1"),
}


def _same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> None:
    assert set(a) == set(b)
    for name, array in a.items():
        assert array.dtype == b[name].dtype
        assert array.shape == b[name].shape
        assert array.tobytes() == b[name].tobytes()


@pytest.mark.parametrize("copy", [False, True])
def test_tensors_come_back(tmp_path: Path, copy: bool) -> None:
    path = tmp_path / "t.safetensors"
    write_tensors(path, TENSORS, {"k": "v"})
    found, metadata = read_tensors(path, "test file", copy=copy)
    _same(TENSORS, found)
    assert metadata == {"k": "v"}
    assert path.stat().st_size == file_size(TENSORS, {"k": "v"})
    assert found["b"].flags.writeable is copy
    for array in found.values():
        assert array.ctypes.data % array.dtype.itemsize == 0


def test_other_layouts_of_an_array_give_the_same_file(tmp_path: Path) -> None:
    big = {name: a.astype(a.dtype.newbyteorder(">")) for name, a in TENSORS.items()}
    big["b"] = np.asfortranarray(big["b"])
    write_tensors(tmp_path / "a", TENSORS)
    write_tensors(tmp_path / "b", dict(reversed(big.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_safetensors_library_reads_it(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    write_tensors(tmp_path / "t", TENSORS)
    _same(TENSORS, library.load_file(str(tmp_path / "t")))
    library.save_file(TENSORS, str(tmp_path / "u"))
    _same(TENSORS, read_tensors(tmp_path / "u", "test file", strict=False)[0])


@pytest.mark.parametrize("strict", [True, False])
@given(data=st.data())
def test_no_damage_to_the_header_is_a_surprise(
    strict: bool, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any damaged file is refused with a CounterpartyError, or reads as something smaller."""
    path = tmp_path_factory.getbasetemp() / f"damaged-{strict}"
    write_tensors(path, TENSORS)
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        found, _ = read_tensors(path, "test file", strict=strict)
    except CounterpartyError:
        return
    assert sum(a.nbytes for a in found.values()) <= len(whole)


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}} ',
        b'{"a":{"dtype":"F32","data_offsets":[0,4],"shape":[1]}}',
        b'{"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1],"x":1}}',
        b'{"a":{"data_offsets":[0,4],"dtype":"F16","shape":[2]}}',
        b'{"a":{"data_offsets":[0,4],"dtype":"F32","shape":[-1]}}',
        b'{"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1099511627777]}}',
        b'{"a":{"data_offsets":[0,4],"dtype":"F32","shape":[99999999999,99999999999]}}',
        b'{"a":{"data_offsets":[0,4],"dtype":"F32","shape":1}}',
        b'{"a":[]}',
        b"[]",
        b"{",
        b'{"__metadata__":{"a":1}}',
    ],
)
def test_headers_that_are_not_canonical(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(CorruptFileError):
        read_tensors(path, "test file")


@pytest.mark.parametrize("length", [0, 7, 8, 1 << 62])
def test_an_impossible_header_length(length: int, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(length.to_bytes(8, "little")[: 7 if length == 7 else 8])
    with pytest.raises(CorruptFileError):
        read_tensors(path, "test file")


def test_manifests(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(manifest_bytes({"format": "tallystick-test/1", "a": 1}))
    assert load_manifest(path, "test manifest", "tallystick-test/1")["a"] == 1
    with pytest.raises(UnsupportedVersionError):
        load_manifest(path, "test manifest", "tallystick-test/2")
    with pytest.raises(CorruptFileError):
        load_manifest(path, "test manifest", "tallystick-other/1")
    path.write_bytes(path.read_bytes().replace(b'"a":1', b'"a":2'))
    with pytest.raises(DigestMismatchError):
        load_manifest(path, "test manifest", "tallystick-test/1")
    with pytest.raises(StorageError):
        load_manifest(tmp_path / "none", "test manifest", "tallystick-test/1")


def test_reads_are_bounded_before_they_allocate(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptFileError):
        read_file(tmp_path / "huge", 1000, "test file")
    with pytest.raises(StorageError):
        read_file(tmp_path / "none", 1000, "test file")
    with pytest.raises(CorruptFileError, match="a directory, not a regular file"):
        read_file(tmp_path, 1000, "test file")


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_file(path, [b"old"])
    with pytest.raises(ZeroDivisionError):
        write_file(path, (b"new"[: 1 // n] for n in (1, 0)))
    assert path.read_bytes() == b"old"


def test_a_copy_shares_nothing(tmp_path: Path) -> None:
    """An alteration of a run's copy of the job must not reach the job."""
    (tmp_path / "a").write_bytes(b"same")
    clone_or_copy(tmp_path / "a", tmp_path / "b")
    with open(tmp_path / "b", "r+b") as file:
        file.write(b"S")
    assert (tmp_path / "a").read_bytes() == b"same"


def test_what_fails_beside_the_disk_leaves_nothing(tmp_path: Path) -> None:
    """The source of the bytes fails: no temporary file and no open descriptor stays."""

    def chunks(error: type[BaseException]) -> Iterator[bytes]:
        yield b"some"
        raise error("broken")

    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    for error in (MemoryError, CorruptFileError, KeyboardInterrupt):
        with pytest.raises(error):
            write_file(tmp_path / "file", chunks(error))
    assert list(tmp_path.iterdir()) == []
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before

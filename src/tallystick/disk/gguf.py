"""A reader of GGUF files, versions 2 and 3: metadata, and tensors as the file holds them.

Nothing in a file is trusted: every count, length and offset is compared with the file's size, or
with a limit, before anything is made of it. Numbers of quantised tensors stay in their blocks.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from tallystick.commit.tensor import DTYPES, Array
from tallystick.disk.regular import map_file, open_file, os_errors
from tallystick.errors import CorruptFileError, RefusedModelError
from tallystick.limits import LIMITS

SUFFIX = ".gguf"
Scalar = int | float | bool | str
Value = Scalar | list[Scalar]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
# Of one file: metadata keys, tensors, elements of one array, and bytes before the tensors.
_KEYS, _TENSORS, _ELEMENTS, _HEADER = 1 << 16, 1 << 16, 1 << 24, 1 << 28
_NAME, _TEXT = 1 << 10, 1 << 26
_MAX_AXES = 4
_MAX_ALIGNMENT = 1 << 16

_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
            10: "<Q", 11: "<q", 12: "<d"}  # fmt: skip

# By the file's numbers: plain types and formats of blocks, with their numbers and bytes.
PLAIN = {0: "f32", 1: "f16", 30: "bf16"}
_BLOCKED = {
    2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20), 6: ("q5_0", 32, 22), 7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34), 12: ("q4_k", 256, 144), 13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210),
}  # fmt: skip
_OTHERS = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0",
    39: "MXFP4", 40: "NVFP4",
}  # fmt: skip


@dataclass(frozen=True)
class GgufTensor:
    """`format` is a dtype, or a format of blocks. `shape` is that of the numbers, row-major;
    `stored` that of the array which holds them: of u8 where they are in blocks."""

    format: str
    shape: tuple[int, ...]
    stored: tuple[int, ...]
    place: int
    nbytes: int

    @property
    def dtype(self) -> str:
        return self.format if self.format in DTYPES else "u8"


@dataclass(frozen=True)
class GgufFile:
    """A file whose header is read and checked."""

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]

    def mapped(self) -> dict[str, Array]:
        """Every tensor as it is stored, C-contiguous and writable: views of a private map, so that
        nothing is read before it is used. Raises StorageError, CorruptFileError for a file that was
        cut meanwhile."""
        found: dict[str, Array] = {}
        file, size = open_file(self.path, "GGUF file")
        with os_errors(self.path), file:
            if any(t.place + t.nbytes > size for t in self.tensors.values()):
                _fail(self.path, "it was cut while it was read")
            memory = map_file(file, size, private=True)
        for name, tensor in self.tensors.items():
            dtype = DTYPES[tensor.dtype]
            count = math.prod(tensor.stored)
            view = np.frombuffer(memory, dtype, count, tensor.place).reshape(tensor.stored)
            found[name] = np.require(view, dtype, ["A", "C", "W"])
        return found


def open_gguf(path: Path) -> GgufFile:
    """The file at `path`. Raises StorageError, CorruptFileError, and RefusedModelError for a tensor
    of a type that is not read."""
    file, size = open_file(path, "GGUF file")
    with os_errors(path), file:
        if size < len(_MAGIC) + 20:
            _fail(path, "it is too short")
        with map_file(file, size) as memory:
            return _read(path, memory, size)


def _fail(path: Path, why: str) -> NoReturn:
    raise CorruptFileError(f"{path} cannot be read as a GGUF file: {why}.", "Download it again.")


class _Reader:
    """Numbers and texts one after the other, each compared with what is left of the file."""

    def __init__(self, path: Path, memory: mmap.mmap, size: int) -> None:
        self.path, self.at = path, 0
        self._memory, self._end = memory, min(size, _HEADER)

    def fail(self, why: str) -> NoReturn:
        _fail(self.path, why)

    def take(self, count: int) -> bytes:
        if count > self._end - self.at:
            self.fail("its header does not end")
        self.at += count
        return self._memory[self.at - count : self.at]

    def number(self, form: str) -> int | float | bool:
        (found,) = struct.unpack(form, self.take(struct.calcsize(form)))
        return found  # type: ignore[no-any-return]

    def count(self, limit: int, what: str) -> int:
        found = int(self.number("<Q"))
        if found > limit:
            self.fail(f"it has {found} {what}, more than {limit}")
        return found

    def text(self, limit: int) -> str:
        data = self.take(self.count(limit, "bytes in a text"))
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            self.fail("a text in it is not UTF-8")

    def scalar(self, kind: int) -> Scalar:
        if kind == _STRING:
            return self.text(_TEXT)
        if kind not in _NUMBERS:
            self.fail(f"it has a value of kind {kind}")
        if kind == 7 and self._memory[self.at : self.at + 1] not in (b"\0", b"\1"):
            self.fail("a bool in it is neither 0 nor 1")
        return self.number(_NUMBERS[kind])

    def value(self) -> Value:
        kind = int(self.number("<I"))
        if kind != _ARRAY:
            return self.scalar(kind)
        of = int(self.number("<I"))
        if of == _ARRAY:
            self.fail("it has an array of arrays")
        count = self.count(_ELEMENTS, "elements in an array")
        if of == _STRING or of not in _NUMBERS or of == 7:
            return [self.scalar(of) for _ in range(count)]
        form = _NUMBERS[of]
        data = self.take(count * struct.calcsize(form))
        return list(struct.unpack(f"<{count}{form[1:]}", data))


def _read(path: Path, memory: mmap.mmap, size: int) -> GgufFile:
    r = _Reader(path, memory, size)
    if r.take(4) != _MAGIC:
        r.fail("it does not begin with GGUF")
    version = int(r.number("<I"))
    if version not in _VERSIONS:
        r.fail(f"its version is {version}, and versions 2 and 3 are read, of little-endian numbers")
    tensors, keys = r.count(_TENSORS, "tensors"), r.count(_KEYS, "metadata keys")
    metadata: dict[str, Value] = {}
    for _ in range(keys):
        key = r.text(_NAME)
        if key in metadata:
            r.fail(f"it has the key {key[:80]!r} twice")
        metadata[key] = r.value()
    alignment = metadata.get("general.alignment", 32)
    if (
        not isinstance(alignment, int)
        or not 8 <= alignment <= _MAX_ALIGNMENT
        or alignment & (alignment - 1)
    ):
        r.fail(f"its alignment is {str(alignment)[:40]}")
    listed = dict(_listed(r, tensors))
    if len(listed) != tensors:
        r.fail("it has two tensors of one name")
    start = -(-r.at // alignment) * alignment
    found = {}
    for name, (tensor, offset) in listed.items():
        if offset % alignment:
            r.fail(f"the tensor {name[:80]!r} does not begin at a multiple of {alignment}")
        place = start + offset
        if place + tensor.nbytes > size:
            r.fail(f"the tensor {name[:80]!r} ends behind the file")
        found[name] = GgufTensor(tensor.format, tensor.shape, tensor.stored, place, tensor.nbytes)
    _check_apart(r, found)
    return GgufFile(path, metadata, found)


def _listed(r: _Reader, count: int) -> Iterator[tuple[str, tuple[GgufTensor, int]]]:
    """The tensors and their offsets in the data."""
    for _ in range(count):
        name = r.text(_NAME)
        axes = int(r.number("<I"))
        if axes > _MAX_AXES:
            r.fail(f"the tensor {name[:80]!r} has {axes} axes")
        # The file has the fastest axis first.
        shape = tuple(int(r.number("<Q")) for _ in range(axes))[::-1]
        kind, offset = int(r.number("<I")), int(r.number("<Q"))
        yield name, (_typed(r, name, shape, kind), offset)


def _typed(r: _Reader, name: str, shape: tuple[int, ...], kind: int) -> GgufTensor:
    total = 1
    for n in shape:
        total *= n
        if not 1 <= n <= LIMITS.tensor_bytes or total > LIMITS.tensor_bytes:
            r.fail(f"the tensor {name[:80]!r} has the shape {list(shape)}")
    if kind in PLAIN:
        dtype = PLAIN[kind]
        return GgufTensor(dtype, shape, shape, 0, total * DTYPES[dtype].itemsize)
    if kind not in _BLOCKED:
        raise RefusedModelError(
            f"The tensor {name[:80]!r} of {r.path} has the type {_OTHERS.get(kind, kind)}, which "
            "is not supported.",
            "Use a file that has only F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K "
            "and Q6_K.",
        )
    format_, elements, size = _BLOCKED[kind]
    if not shape or shape[-1] % elements:
        r.fail(f"a row of the tensor {name[:80]!r} is not made of whole blocks")
    stored = (*shape[:-1], shape[-1] // elements * size)
    return GgufTensor(format_, shape, stored, 0, total // elements * size)


def _check_apart(r: _Reader, tensors: Mapping[str, GgufTensor]) -> None:
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].place):
        if tensor.place < end:
            r.fail(f"the tensor {name[:80]!r} lies in another one")
        end = tensor.place + tensor.nbytes

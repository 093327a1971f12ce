"""Tensors of an ONNX file, sizes checked before anything is allocated, and the package `onnx`.

External data lie in files below the model's directory. No link is followed there, and no path
leaves it. A file cannot make more bytes of tensors than it has: its data files are read once, and
a tensor in a function's body counts at each call.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tallystick.disk.regular import open_file, os_errors
from tallystick.errors import CorruptFileError, StorageError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.capture.onnx.graph import DTYPES


def onnx_package() -> Any:
    """The module `onnx`. Raises UsageError where it is not installed."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise UsageError(
            f"tallystick.from_onnx needs the package onnx ({error}).",
            "Run pip install 'tallystick[onnx]'.",
        ) from None


_SCARY = "Get an intact copy of the model from its author."
_EXTERNAL = 1  # TensorProto.EXTERNAL


def dtype_of(number: int, what: str) -> np.dtype[Any]:
    """Raises UsageError for a dtype that no contract has."""
    if number not in DTYPES:
        raise UsageError(
            f"{what} has the ONNX dtype {dtype_name(number)}, which no contract defines.",
            "Export the model in float32, with int64, int32, uint8 or bool beside it.",
        )
    return DTYPES[number]


def dtype_name(number: int) -> str:
    """ONNX's name of a dtype, for messages."""
    known = {value: name for name, value in onnx_package().TensorProto.DataType.items()}
    return str(known.get(number, f"number {number}"))


def _count(proto: Any, what: str) -> int:
    shape = tuple(proto.dims)
    if len(shape) > LIMITS.tensor_rank or any(n < 0 for n in shape):
        raise UsageError(f"{what} has the shape {str(shape)[:80]}.", _SCARY)
    return math.prod(shape)


@dataclass
class Tensors:
    """Makes the arrays of one file whose directory is `directory`; without one it has no external
    data."""

    directory: Path | None
    _copied: int = 0  # bytes of tensors in bodies of functions
    _given: Counter[Path] = field(default_factory=Counter)  # bytes read of each data file

    def array(self, proto: Any, what: str, in_body: bool = False) -> np.ndarray:
        """The array of a TensorProto, which may stand in a function's body. Raises UsageError."""
        dtype = dtype_of(proto.data_type, what)
        count = _count(proto, what)
        if proto.HasField("segment"):
            raise UsageError(f"{what} is stored in segments, which ONNX does not use.", _SCARY)
        if proto.data_location == _EXTERNAL:
            return self._external(proto, what, None if in_body else self.directory, dtype, count)
        if in_body:
            self._copied += count * dtype.itemsize
            if self._copied > LIMITS.onnx_file_bytes:
                raise UsageError(
                    "The functions of the file make more than "
                    f"{LIMITS.onnx_file_bytes} bytes of constants.",
                    "Make large constants initializers of the graph.",
                )
        if proto.HasField("raw_data"):
            if len(proto.raw_data) != count * dtype.itemsize:
                raise _size(what, len(proto.raw_data), count * dtype.itemsize)
            made = np.frombuffer(proto.raw_data, dtype.newbyteorder("<"))
        else:
            fields = {"f": proto.float_data, "i": proto.int32_data, "d": proto.double_data}
            given = {"float32": "f", "float64": "d", "int64": "l"}.get(dtype.name, "i")
            values = proto.int64_data if given == "l" else fields[given]
            if len(values) != count:
                raise _size(what, len(values) * dtype.itemsize, count * dtype.itemsize)
            made = np.array(values, dtype)
        if dtype == np.bool_ and proto.HasField("raw_data"):
            made = np.frombuffer(proto.raw_data, np.uint8) != 0
        return made.astype(dtype, copy=True).reshape(tuple(proto.dims))

    def _external(
        self, proto: Any, what: str, directory: Path | None, dtype: np.dtype[Any], count: int
    ) -> np.ndarray:
        stated = {entry.key: entry.value for entry in proto.external_data}
        if not all(isinstance(text, str) for text in stated.values()):  # not UTF-8
            raise UsageError(f"{what} has external data in no text.", _SCARY)
        path = _inside(stated.get("location", ""), what, directory)
        needed = count * dtype.itemsize
        offset = _number(stated.get("offset", "0"), what)
        if _number(stated.get("length", str(needed)), what) != needed:
            raise _size(what, _number(stated["length"], what), needed)
        try:
            file, size = open_file(path, "ONNX data file", directory)
            with os_errors(path), file:
                if offset + needed > size:
                    raise UsageError(
                        f"{what} needs bytes {offset} to {offset + needed} of {path.name}, which "
                        f"has {size}.",
                        _SCARY,
                    )
                self._given[path] += needed
                if self._given[path] > size:
                    raise UsageError(
                        f"The file's tensors take more bytes of {path.name} than it has.",
                        "Save the model again, with data of its own for each tensor.",
                    )
                file.seek(offset)
                data = file.read(needed)
        except (CorruptFileError, StorageError) as error:
            raise UsageError(f"{what}: {error.message}", error.next_action) from error
        if len(data) != needed:
            raise _size(what, len(data), needed)
        made = np.frombuffer(data, np.uint8 if dtype == np.bool_ else dtype.newbyteorder("<"))
        return made.astype(dtype, copy=True).reshape(tuple(proto.dims))


def _size(what: str, found: int, needed: int) -> UsageError:
    return UsageError(f"{what} has {found} bytes where its shape needs {needed}.", _SCARY)


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise UsageError(f"{what} has external data at {text[:40]!r}.", _SCARY)
    return int(text)


def _inside(location: str, what: str, directory: Path | None) -> Path:
    """The data file; the caller opens it without following a link below `directory`."""
    parts = PurePosixPath(location).parts
    outside = location.startswith("/") or ".." in parts or "\\" in location or "\0" in location
    if directory is None or not parts or outside or ":" in parts[0]:
        raise UsageError(
            f"{what} has external data in {location[:80]!r}, outside of the model's directory.",
            "Put model and data into one directory; onnx.save_model writes relative names.",
        )
    return directory.joinpath(*parts)

"""A directory of weights as Hugging Face's libraries write it: config.json and safetensors files.

Only safetensors are read: nothing is unpickled. The weights become float32. Those of bfloat16 and
float16 do so without rounding; other types are refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.disk.regular import map_file, os_errors, present, read_file
from tallystick.disk.tensorfile import TensorFile, open_tensors
from tallystick.errors import CorruptFileError, StorageError, UsageError
from tallystick.limits import LIMITS

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """The directory, its config, and of each tensor the file, the dtype and the shape."""

    directory: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[Path, str, tuple[int, ...]]]

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.directory.name or "."

    def read(self, name: str) -> Array:
        """A tensor as float32, C-contiguous. Raises UsageError for other numbers, and the errors
        of `read_tensors`."""
        path, dtype, shape = self.tensors[name]
        self._check_float(name)
        with open_tensors(path, "checkpoint", strict=False, halves=True) as file:
            if file.types.get(name) != (dtype, shape):
                raise _changed(path)
            return _float32(file.raw(name), dtype, shape)

    def mapped(self) -> dict[str, Array]:
        """Every tensor as float32, C-contiguous and writable. Those that are stored so are views of
        private maps of their files: nothing of them is read before it is used, and a change stays
        in memory. Raises as `read`."""
        found: dict[str, Array] = {}
        for path in dict.fromkeys(path for path, _, _ in self.tensors.values()):
            with open_tensors(path, "checkpoint", strict=False, halves=True) as file:
                with os_errors(path):
                    memory = map_file(file.file, file.size, private=True)
                for name, (dtype, shape) in file.types.items():
                    if self.tensors.get(name) != (path, dtype, shape):
                        raise _changed(path)
                    self._check_float(name)
                    if dtype == "f32":
                        view = np.frombuffer(memory, "<f4", math.prod(shape), file.places[name])
                        found[name] = np.require(view.reshape(shape), np.float32, ["A", "C", "W"])
                    else:
                        found[name] = _float32(file.raw(name), dtype, shape)
        return found

    def _check_float(self, name: str) -> None:
        dtype = self.tensors[name][1]
        if dtype not in ("f32", "bf16", "f16"):
            raise UsageError(
                f"{name} of the checkpoint {self.directory} is {dtype}.",
                "Save its weights as float32, bfloat16 or float16.",
            )


def _changed(path: Path) -> CorruptFileError:
    return CorruptFileError(f"{path} was changed while it was read.", "Start again.")


def _float32(raw: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    """The numbers in a tensor's bytes, exactly."""
    if dtype == "bf16":
        wide = raw.view("<u2").astype(np.uint32) << np.uint32(16)
        widened: Array = wide.view(np.float32).reshape(shape)
        return widened
    given: Array = raw.view("<f2" if dtype == "f16" else "<f4")
    return np.ascontiguousarray(given.reshape(shape), dtype=np.float32)


def open_checkpoint(directory: Path) -> Checkpoint:
    """The checkpoint in `directory`. Raises UsageError where there is none, StorageError,
    CorruptFileError."""
    if not present(directory / CONFIG):
        raise UsageError(
            f"{directory} is no checkpoint: it has no {CONFIG}.",
            "Give a directory that save_pretrained wrote, with model.safetensors.",
        )
    config = _read_json(directory / CONFIG)
    tensors: dict[str, tuple[Path, str, tuple[int, ...]]] = {}
    for path in _files(directory):
        with open_tensors(path, "checkpoint", strict=False, halves=True) as file:
            _take(tensors, file)
    return Checkpoint(directory, config, tensors)


def _take(tensors: dict[str, tuple[Path, str, tuple[int, ...]]], file: TensorFile) -> None:
    for name, (dtype, shape) in file.types.items():
        if name in tensors:
            raise CorruptFileError(
                f"{file.path} has {name[:80]!r}, which {tensors[name][0]} has too.",
                "Save the checkpoint again.",
            )
        tensors[name] = (file.path, dtype, shape)


def _files(directory: Path) -> list[Path]:
    if present(directory / WEIGHTS):
        return [directory / WEIGHTS]
    if not present(directory / INDEX):
        raise StorageError(
            f"{directory} has no {WEIGHTS}, and no {INDEX}.",
            "Save the model with safetensors: nothing else is read.",
        )
    table = _read_json(directory / INDEX).get("weight_map")
    names = sorted(set(map(str, table.values()))) if isinstance(table, dict) else []
    if not names or any("/" in name or name.startswith(".") for name in names):
        raise CorruptFileError(f"{directory / INDEX} names no files.", "Save it again.")
    return [directory / name for name in names]


def _read_json(path: Path) -> dict[str, Any]:
    data = read_file(path, LIMITS.manifest_bytes, "checkpoint")
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise CorruptFileError(f"{path} is not JSON.", "Save the checkpoint again.") from None
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} is no table.", "Save the checkpoint again.")
    return found

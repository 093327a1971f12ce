"""A directory of weights as Hugging Face's libraries write it: config.json and safetensors files.

Only safetensors are read: nothing is unpickled. Weights are float32, bfloat16 or float16; other
types are refused. `read` widens them to float32, without rounding.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.tensor import DTYPES, STORED, Array, widened
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
        with open_tensors(path, "checkpoint", strict=False) as file:
            if file.types.get(name) != (dtype, shape):
                raise _changed(path)
            array: Array = file.raw(name).view(DTYPES[dtype]).reshape(shape)
            return widened(array) if dtype in STORED else array

    def mapped(self, but: re.Pattern[str] | None = None) -> dict[str, Array]:
        """Every tensor in its stored type, C-contiguous and writable: views of private maps of the
        files, so that nothing is read before it is used, and a change stays in memory. Those whose
        name `but` finds are left out. Raises as `read`."""
        found: dict[str, Array] = {}
        for path in dict.fromkeys(path for path, _, _ in self.tensors.values()):
            with open_tensors(path, "checkpoint", strict=False) as file:
                with os_errors(path):
                    memory = map_file(file.file, file.size, private=True)
                for name, (dtype, shape) in file.types.items():
                    if self.tensors.get(name) != (path, dtype, shape):
                        raise _changed(path)
                    if but is not None and but.search(name):
                        continue
                    self._check_float(name)
                    own = DTYPES[dtype]
                    view = np.frombuffer(memory, own, math.prod(shape), file.places[name])
                    found[name] = np.require(view.reshape(shape), own, ["A", "C", "W"])
        return found

    def _check_float(self, name: str) -> None:
        dtype = self.tensors[name][1]
        if dtype not in ("f32", *STORED):
            raise UsageError(
                f"{name} of the checkpoint {self.directory} has the type {dtype}.",
                "Save its weights as float32, bfloat16 or float16.",
            )


def _changed(path: Path) -> CorruptFileError:
    return CorruptFileError(f"{path} changed while it was read.", "Run the command again.")


def open_checkpoint(directory: Path) -> Checkpoint:
    """The checkpoint in `directory`. Raises UsageError where there is none, StorageError,
    CorruptFileError."""
    if not present(directory / CONFIG):
        raise UsageError(
            f"{directory} is not a checkpoint: it has no {CONFIG}.",
            "Name a directory that save_pretrained wrote, with model.safetensors.",
        )
    config = _read_json(directory / CONFIG)
    tensors: dict[str, tuple[Path, str, tuple[int, ...]]] = {}
    for path in _files(directory):
        with open_tensors(path, "checkpoint", strict=False) as file:
            _take(tensors, file)
    return Checkpoint(directory, config, tensors)


def _take(tensors: dict[str, tuple[Path, str, tuple[int, ...]]], file: TensorFile) -> None:
    for name, (dtype, shape) in file.types.items():
        if name in tensors:
            raise CorruptFileError(
                f"{file.path} contains {name[:80]!r}, and so does {tensors[name][0]}.",
                "Save the checkpoint again.",
            )
        tensors[name] = (file.path, dtype, shape)


def _files(directory: Path) -> list[Path]:
    if present(directory / WEIGHTS):
        return [directory / WEIGHTS]
    if not present(directory / INDEX):
        raise StorageError(
            f"{directory} contains neither {WEIGHTS} nor {INDEX}.",
            "Save the model as safetensors. No other format is read.",
        )
    table = _read_json(directory / INDEX).get("weight_map")
    names = sorted(set(map(str, table.values()))) if isinstance(table, dict) else []
    if not names or any("/" in name or name.startswith(".") for name in names):
        raise CorruptFileError(f"{directory / INDEX} names no files.", "Save the checkpoint again.")
    return [directory / name for name in names]


def _read_json(path: Path) -> dict[str, Any]:
    data = read_file(path, LIMITS.manifest_bytes, "checkpoint")
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise CorruptFileError(f"{path} is not JSON.", "Save the checkpoint again.") from None
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} is not a JSON object.", "Save the checkpoint again.")
    return found

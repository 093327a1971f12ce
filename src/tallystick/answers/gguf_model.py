"""A model in one GGUF file: config, tokenizer, template, and weights as the file holds them
(ANSWERS 12)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.answers.gguf_config import ROPE_FACTORS, Architecture, architecture_of
from tallystick.answers.gguf_tokenizer import tokenizer_of
from tallystick.commit.tensor import Array
from tallystick.disk.gguf import GgufFile, GgufTensor, Value, open_gguf
from tallystick.errors import CorruptFileError, RefusedModelError

_TEMPLATE = "tokenizer.chat_template"


@dataclass(frozen=True)
class GgufWeights:
    """The weights of a file, under the names of transformers' parameters."""

    file: GgufFile = field(repr=False)
    architecture: Architecture = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    # The file's tensors by the names of parameters.
    names: Mapping[str, str] = field(repr=False)

    @property
    def directory(self) -> Path:
        """Where the model is."""
        return self.file.path

    @property
    def tensors(self) -> Mapping[str, GgufTensor]:
        return {name: self.file.tensors[own] for name, own in self.names.items()}

    @property
    def turned(self) -> frozenset[str]:
        """The parameters that are transposes of the file's matrices."""
        return frozenset(n for n, own in self.names.items() if self.architecture.is_turned(own))

    def mapped(self) -> dict[str, Array]:
        """Every weight in its slot's form (ANSWERS 12.3). Raises as `GgufFile.mapped`."""
        arrays = self.file.mapped()
        return {name: self._rows(own, arrays[own]) for name, own in self.names.items()}

    def _rows(self, name: str, array: Array) -> Array:
        """Of interleaved rows those of a head's first halves, then those of the second ones."""
        if not self.architecture.is_interleaved(name):
            return array
        width = self.config["head_dim"]
        heads, rest = divmod(array.shape[0], width)
        if rest or width % 2:
            raise CorruptFileError(
                f"The rows of {name[:80]!r} are no heads of {width} elements.", "Fetch it again."
            )
        pairs = array.reshape(heads, width // 2, 2, *array.shape[1:])
        return np.ascontiguousarray(np.swapaxes(pairs, 1, 2)).reshape(array.shape)

    def rope_factors(self) -> Array | None:
        """What the file divides its rotary frequencies by, f32[n], if it does."""
        if ROPE_FACTORS not in self.file.tensors:
            return None
        found = self.file.mapped()[ROPE_FACTORS]
        if found.dtype != np.float32 or found.ndim != 1:
            raise CorruptFileError(f"{ROPE_FACTORS} is not a list of f32.", "Fetch the file again.")
        return found


@dataclass(frozen=True)
class GgufModel:
    """What a file says of a model."""

    weights: GgufWeights
    tokens: int
    stop: tuple[int, ...]
    files: Mapping[str, bytes]
    chat_template: str | None


def read_gguf(path: Path) -> GgufModel:
    """The model in the file at `path`. Raises RefusedModelError for what is not read, by its name;
    StorageError, CorruptFileError."""
    file = open_gguf(path)
    architecture, config = architecture_of(file)
    names: dict[str, str] = {}
    for own in file.tensors:
        name = architecture.parameter(own)
        if name is not None:
            names[name] = own
        elif own != ROPE_FACTORS:
            raise RefusedModelError(
                f"The file has a tensor {own[:80]!r}, and {architecture.family} none of that name.",
                "Use the model's directory, as save_pretrained wrote it.",
            )
    tokenizer = tokenizer_of(file.metadata)
    if len(tokenizer.tokens) > config["vocab_size"]:
        raise CorruptFileError(
            f"The file has {len(tokenizer.tokens)} tokens, and rows for {config['vocab_size']}.",
            "Fetch it again.",
        )
    return GgufModel(
        GgufWeights(file, architecture, config, names),
        len(tokenizer.tokens),
        tokenizer.stop,
        tokenizer.files,
        _template(file.metadata),
    )


def divided_frequencies(slots: Mapping[str, Array], factors: Array) -> dict[str, Array]:
    """The rotary frequencies among the slots, divided by the file's factors: one rounded division
    each (ANSWERS 12.4). Raises CorruptFileError where they do not fit."""
    found = {}
    for name, array in slots.items():
        if name.startswith("buffer.") and name.endswith("inv_freq"):
            if array.shape != factors.shape or not bool(np.all(np.greater(factors, 0))):
                raise CorruptFileError(
                    f"{ROPE_FACTORS} does not fit the frequencies.", "Fetch the file again."
                )
            found[name] = np.divide(array, factors, dtype=np.float32)
    return found


def _template(metadata: Mapping[str, Value]) -> str | None:
    found = metadata.get(_TEMPLATE)
    if found is not None and not isinstance(found, str):
        raise CorruptFileError(f"{_TEMPLATE} is not text.", "Fetch the file again.")
    return found

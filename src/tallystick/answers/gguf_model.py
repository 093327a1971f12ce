"""A model in one GGUF file: config, tokenizer, template, and weights as the file holds them
(ANSWERS 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.answers.gguf_architectures import ROPE_FACTORS, Architecture, architecture_of
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
    # The file's tensors by the names of parameters: one of each, or some whose rows make it.
    names: Mapping[str, tuple[str, ...]] = field(repr=False)

    @property
    def directory(self) -> Path:
        """Where the model is."""
        return self.file.path

    @property
    def formats(self) -> Mapping[str, str]:
        """What each parameter is stored as."""
        return {name: self.file.tensors[own].format for name, (own, *_) in self.names.items()}

    @property
    def turned(self) -> frozenset[str]:
        """The parameters that are transposes of the file's matrices."""
        turned = self.architecture.is_turned
        return frozenset(n for n, (own, *_) in self.names.items() if turned(own))

    @property
    def plus_one(self) -> frozenset[str]:
        """The parameters to which the file's tensors add one."""
        added = self.architecture.is_plus_one
        return frozenset(n for n, (own, *_) in self.names.items() if added(own))

    def mapped(self) -> dict[str, Array]:
        """Every weight in its slot's form (ANSWERS 12.3). Raises as `GgufFile.mapped`."""
        arrays = self.file.mapped()
        return {name: self._together(own, arrays) for name, own in self.names.items()}

    def _together(self, names: Sequence[str], arrays: Mapping[str, Array]) -> Array:
        """The rows of each tensor, one after the other. Those of experts are a matrix of each."""
        parts = [self._rows(name, arrays[name]) for name in names]
        if len(parts) == 1:
            return parts[0]
        if any(p.ndim < 2 or p.shape[:-2] != parts[0].shape[:-2] for p in parts) or any(
            p.shape[-1] != parts[0].shape[-1] for p in parts
        ):
            raise CorruptFileError(
                f"The rows of {' and '.join(names)} do not fit together.",
                "Download the file again.",
            )
        return np.ascontiguousarray(np.concatenate(parts, axis=-2))

    def _rows(self, name: str, array: Array) -> Array:
        """Of interleaved rows those of a head's first halves, then those of the second ones."""
        if not self.architecture.is_interleaved(name):
            return array
        width = self.config["head_dim"]
        heads, rest = divmod(array.shape[0], width)
        if rest or width % 2:
            raise CorruptFileError(
                f"The rows of {name[:80]!r} cannot be split into heads of {width} elements.",
                "Download the file again.",
            )
        pairs = array.reshape(heads, width // 2, 2, *array.shape[1:])
        return np.ascontiguousarray(np.swapaxes(pairs, 1, 2)).reshape(array.shape)

    def rope_factors(self) -> Array | None:
        """What the file divides its rotary frequencies by, f32[n], if it does."""
        if ROPE_FACTORS not in self.file.tensors:
            return None
        found = self.file.mapped()[ROPE_FACTORS]
        if found.dtype != np.float32 or found.ndim != 1:
            raise CorruptFileError(
                f"{ROPE_FACTORS} is not a list of f32.", "Download the file again."
            )
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
    names: dict[str, tuple[str, ...]] = {}
    for own in sorted(file.tensors, key=architecture.order):
        name = architecture.parameter(own)
        if name is not None:
            names[name] = (*names.get(name, ()), own)
        elif own != ROPE_FACTORS or not architecture.divided:
            raise RefusedModelError(
                f"The file contains a tensor {own[:80]!r}, which {architecture.family} does not "
                "have.",
                "Use the model's directory, as save_pretrained wrote it.",
            )
    for parts in names.values():
        _check_one_type([file.tensors[own] for own in parts], parts)
    tokenizer = tokenizer_of(file.metadata)
    if len(tokenizer.tokens) > config["vocab_size"]:
        raise CorruptFileError(
            f"The tokenizer has {len(tokenizer.tokens)} tokens, but the weights have "
            f"{config['vocab_size']} rows.",
            "Download the file again.",
        )
    return GgufModel(
        GgufWeights(file, architecture, config, names),
        len(tokenizer.tokens),
        tokenizer.stop,
        tokenizer.files,
        _template(file.metadata),
    )


def _check_one_type(parts: Sequence[GgufTensor], names: Sequence[str]) -> None:
    kinds = sorted({part.format for part in parts})
    if len(kinds) > 1:
        raise RefusedModelError(
            f"{' and '.join(names)} form one weight, but are stored as {' and '.join(kinds)}.",
            "Use a file that stores them as one type, or use the model's directory.",
        )


def divided_frequencies(slots: Mapping[str, Array], factors: Array) -> dict[str, Array]:
    """The rotary frequencies among the slots, divided by the file's factors: one rounded division
    each (ANSWERS 12.4). Raises CorruptFileError where they do not fit."""
    found = {}
    for name, array in slots.items():
        if name.startswith("buffer.") and name.endswith("inv_freq"):
            if array.shape != factors.shape or not bool(np.all(np.greater(factors, 0))):
                raise CorruptFileError(
                    f"{ROPE_FACTORS} does not fit the number of frequencies.",
                    "Download the file again.",
                )
            found[name] = np.divide(array, factors, dtype=np.float32)
    return found


def _template(metadata: Mapping[str, Value]) -> str | None:
    found = metadata.get(_TEMPLATE)
    if found is not None and not isinstance(found, str):
        raise CorruptFileError(f"{_TEMPLATE} is not text.", "Download the file again.")
    return found

"""A model as answers are given with it: a transformers directory, read without running its code, or
a GGUF file (gguf_model.py).

Of the directory these files are read: config.json, generation_config.json, the tokenizer's files,
and safetensors. Nothing is unpickled, and no code of the directory runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.answers.adapter import CONFIG as ADAPTER_CONFIG
from tallystick.answers.adapter import LoraAdapter, open_adapter
from tallystick.answers.families import AFTER_PAD, ENCODERS, Encoding, encoding_of, family_of
from tallystick.answers.gguf_model import GgufWeights, divided_frequencies, read_gguf
from tallystick.answers.weights import stored_shape
from tallystick.commit.tensor import Array
from tallystick.disk.checkpoint import CONFIG, INDEX, WEIGHTS, Checkpoint, open_checkpoint
from tallystick.disk.gguf import SUFFIX
from tallystick.disk.regular import present, read_file
from tallystick.errors import CorruptFileError, RefusedModelError

GENERATION = "generation_config.json"
TEMPLATE = "chat_template.jinja"
_TOKENIZER = "tokenizer_config.json"
# What a tokenizer of transformers is made of, where a directory has it.
TOKENIZER_FILES = (
    "added_tokens.json", TEMPLATE, "merges.txt", "special_tokens_map.json", "tokenizer.json",
    "tokenizer.model", _TOKENIZER, "vocab.json",
)  # fmt: skip
_TOKENIZER_BYTES = 64 << 20
# Files of weights that are pickles.
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class Model:
    """An opened directory or file. Its programs and weights are read from it when they are asked
    for.

    `vocabulary` counts the logits of a row, `longest` the places of a text. `stop` are the token
    ids that end an answer. `files` has the tokenizer's files by name. `stored` says of each tensor
    of the files as what it is stored (f32, bf16, f16, or a format of NUMERICS 19.1); so are the
    programs' slots. Those of `turned` are the transposes of parameters, and those of `plus_one` are
    parameters plus one. `adapter` changes the model's layers (ANSWERS 4.7). `encoding` is what an
    encoder gives; other models have none.
    """

    checkpoint: Checkpoint | GgufWeights = field(repr=False)
    family: str
    vocabulary: int
    longest: int
    stop: tuple[int, ...]
    files: Mapping[str, bytes] = field(repr=False)
    chat_template: str | None = field(repr=False)
    stored: Mapping[str, str] = field(repr=False)
    adapter: LoraAdapter | None = None
    encoding: Encoding | None = None
    turned: frozenset[str] = frozenset()
    plus_one: frozenset[str] = frozenset()

    @property
    def directory(self) -> Path:
        return self.checkpoint.directory

    @property
    def config(self) -> Mapping[str, Any]:
        """config.json as it stands there."""
        return self.checkpoint.config


def open_model(
    directory: Path | str, adapter: Path | str | None = None, merged: bool = False
) -> Model:
    """The model in a transformers directory or a GGUF file, with the adapter in a directory of
    peft; `merged` says that its products are in the weights.

    Raises RefusedModelError for one that answers are not given with, by name; UsageError,
    StorageError and CorruptFileError where the directory or a file of it is none.
    """
    from tallystick.answers.modules import read_config

    directory = Path(directory)
    if directory.name.endswith(SUFFIX):
        if adapter is not None:
            raise RefusedModelError(
                "An adapter needs a model directory, and this model is a GGUF file.",
                "Use the model's transformers directory.",
            )
        return _from_gguf(directory)
    _refuse_others(directory)
    lora = None if adapter is None else open_adapter(Path(adapter), merged)
    checkpoint = open_checkpoint(directory)
    family = family_of(checkpoint.config)
    config = read_config(checkpoint.config)
    _check_layers(config, len(checkpoint.tensors))
    files = {
        name: read_file(directory / name, _TOKENIZER_BYTES, "tokenizer file")
        for name in TOKENIZER_FILES
        if present(directory / name)
    }
    encoder = family in ENCODERS
    encoding = encoding_of(directory, checkpoint.config, config) if encoder else None
    if encoding is not None and lora is not None:
        raise RefusedModelError(
            "The model is an encoder. Only a model that generates text can have an adapter.",
            "Merge the adapter into its model (merge_and_unload), and save that with "
            "save_pretrained.",
        )
    return Model(
        checkpoint,
        family,
        int(config.vocab_size),
        _longest(config, family, encoding),
        () if encoder else _stop(directory, config.eos_token_id),
        files,
        _chat_template(files),
        {name: dtype for name, (_, dtype, _) in checkpoint.tensors.items()},
        lora,
        encoding,
    )


def _longest(config: Any, family: str, encoding: Encoding | None) -> int:
    """The most places of a text."""
    places = int(config.max_position_embeddings)
    if family in AFTER_PAD:
        places -= int(config.pad_token_id) + 1
    most = None if encoding is None else encoding.most
    return places if most is None else min(places, most)


def _check_layers(config: Any, tensors: int) -> None:
    """Raise RefusedModelError for more layers than tensors, before a module is built of them."""
    if config.num_hidden_layers > tensors:
        raise RefusedModelError(
            f"The config has {config.num_hidden_layers} layers, but the files have only {tensors} "
            "tensors.",
            "Use the weights that belong to this config.",
        )


def _from_gguf(path: Path) -> Model:
    from tallystick.answers.modules import read_config

    found = read_gguf(path)
    family = family_of(found.weights.config)
    config = read_config(found.weights.config)
    formats = found.weights.formats
    _check_layers(config, len(formats))
    return Model(
        found.weights,
        family,
        int(config.vocab_size),
        int(config.max_position_embeddings),
        found.stop,
        found.files,
        found.chat_template,
        formats,
        turned=found.weights.turned,
        plus_one=found.weights.plus_one,
    )


def _refuse_others(directory: Path) -> None:
    if present(directory / ADAPTER_CONFIG):
        raise RefusedModelError(
            f"{directory} is an adapter, not a model.",
            "Name the directory of its model, and pass this one with --adapter.",
        )
    weights = present(directory / WEIGHTS) or present(directory / INDEX)
    pickled = next((name for name in _PICKLES if present(directory / name)), None)
    if present(directory / CONFIG) and not weights and pickled:
        raise RefusedModelError(
            f"The weights of {directory} are a pickle ({pickled}). Pickles are never read.",
            "Save them with save_pretrained(..., safe_serialization=True).",
        )


def _table(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CorruptFileError(f"{name} is not a JSON object.", "Save the model again.")
    return found


def _stop(directory: Path, of_config: Any) -> tuple[int, ...]:
    """The ids that end a text: those of generation_config.json, else the config's."""
    given = of_config
    if present(directory / GENERATION):
        data = read_file(directory / GENERATION, _TOKENIZER_BYTES, "generation config")
        given = _table(data, GENERATION).get("eos_token_id", given)
    ids = [] if given is None else given if isinstance(given, list) else [given]
    if any(type(i) is not int or i < 0 for i in ids):
        raise CorruptFileError(
            f"eos_token_id in {directory} is {str(ids)[:80]}, not token ids.",
            "Set it to token ids.",
        )
    return tuple(sorted(set(ids)))


def _chat_template(files: Mapping[str, bytes]) -> str | None:
    """The template by which messages become a text, where the directory has one."""
    try:
        if TEMPLATE in files:
            return files[TEMPLATE].decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptFileError(f"{TEMPLATE} is not UTF-8.", "Save the tokenizer again.") from None
    found = (
        _table(files[_TOKENIZER], _TOKENIZER).get("chat_template") if _TOKENIZER in files else None
    )
    if isinstance(found, list):  # several, by name
        named = [t for t in found if isinstance(t, dict) and t.get("name") == "default"]
        found = named[0].get("template") if named else None
    return found if isinstance(found, str) else None


def weights(model: Model) -> dict[str, Array]:
    """Every state slot of the model's programs, in its stored form, C-contiguous.

    Weights are private maps of the files: nothing of them is read before it is used. Only those
    that a merged adapter changes are computed. Raises RefusedModelError where the files do not fit
    the config.
    """
    from tallystick.answers.modules import computed_buffers, merge, module_of, parameter_names
    from tallystick.answers.weights import named, types_of

    module, adapter = module_of(model), model.adapter
    matrices = adapter.mapped() if adapter is not None and not adapter.merged else {}
    arrays = _mapped(model, module)
    shapes, tied, prefix = parameter_names(module)
    types, turned = types_of(model, module), model.turned
    stored = {n: stored_shape(types.get(n, ""), s, n in turned) for n, s in shapes.items()}
    found = named({**arrays, **matrices}, stored, tied, prefix)
    merge(model, module, found)
    slots = {f"param.{name}": array for name, array in found.items()}
    slots |= {f"buffer.{name}": array for name, array in computed_buffers(module).items()}
    factors = model.checkpoint.rope_factors() if isinstance(model.checkpoint, GgufWeights) else None
    if factors is not None:
        slots |= divided_frequencies(slots, factors)
    return dict(sorted(slots.items()))


def _mapped(model: Model, module: Any) -> dict[str, Array]:
    """The tensors of the files, of an encoder by the names of its module."""
    from tallystick.answers.weights import UNREAD, encoder_names

    checkpoint = model.checkpoint
    if model.encoding is None or isinstance(checkpoint, GgufWeights):
        return checkpoint.mapped()
    arrays = checkpoint.mapped(but=UNREAD)
    return {own: arrays[name] for name, own in encoder_names(arrays, module).items()}

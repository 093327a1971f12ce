"""A model in one GGUF file: config, tokenizer, template, and weights as the file holds them, under
the names of transformers' parameters by its architecture (ANSWERS 12).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.answers import gguf_config as config
from tallystick.answers.gguf_config import GgufFacts, refused
from tallystick.answers.gguf_tokenizer import tokenizer_of
from tallystick.commit.tensor import Array
from tallystick.disk.gguf import GgufFile, GgufTensor, Value, open_gguf
from tallystick.errors import CorruptFileError, RefusedModelError

# Factors by which the file divides its rotary frequencies.
ROPE_FACTORS = "rope_freqs.weight"
_BLOCK = re.compile(r"blk\.([0-9]{1,6})\.([a-z_]+)\.(weight|bias)")
_Names = Mapping[str, str]


@dataclass(frozen=True)
class Architecture:
    """An architecture of GGUF. `outer` and `inner` are transformers' names of its modules, by the
    file's: of the whole model, and of each block, which stand below `blocks`; `parts` names
    parameters of a block that are put together of the rows of several tensors, in this order.
    Matrices of `turned` modules lie in the file the other way; the rows of `interleaved` ones are
    in pairs. `plus_one` says that weights of norms are those of transformers plus one, and
    `divided` that a file may divide its rotary frequencies.
    """

    family: str
    config: Callable[[GgufFacts], dict[str, Any]]
    blocks: str
    outer: _Names
    inner: _Names
    parts: _Names = field(default_factory=dict)
    turned: frozenset[str] = frozenset()
    interleaved: frozenset[str] = frozenset()
    plus_one: bool = False
    divided: bool = True

    def parameter(self, name: str) -> str | None:
        """transformers' name of the parameter that the file's tensor is, or is a part of; None of
        a tensor that it has not."""
        block = _BLOCK.fullmatch(name)
        if block is None:
            module, _, kind = name.rpartition(".")
            return f"{self.outer[module]}.{kind}" if module in self.outer else None
        number, module, kind = block.groups()
        if module in self.parts and kind == "weight":
            return f"{self.blocks}.{number}.{self.parts[module]}"
        if module not in self.inner:
            return None
        return f"{self.blocks}.{number}.{self.inner[module]}.{kind}"

    def order(self, name: str) -> int:
        """Where a tensor stands among those of its parameter."""
        block = _BLOCK.fullmatch(name)
        return 0 if block is None else [*self.parts, block[2]].index(block[2])

    def is_turned(self, name: str) -> bool:
        """Whether a tensor of the file is the transpose of the parameter."""
        block = _BLOCK.fullmatch(name)
        return block is not None and block[2] in self.turned and block[3] == "weight"

    def is_plus_one(self, name: str) -> bool:
        """Whether a tensor of the file is the parameter plus one."""
        return self.plus_one and name.endswith("norm.weight")

    def is_interleaved(self, name: str) -> bool:
        block = _BLOCK.fullmatch(name)
        return block is not None and block[2] in self.interleaved


_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_ATTENTION = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
}  # fmt: skip
_GATED = {"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
_INNER = {**_ATTENTION, "ffn_norm": "post_attention_layernorm", **_GATED}
_NORMED = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_GEMMA2 = {
    **_ATTENTION, **_GATED, "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
_PHI3 = {**_INNER, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_ROUTED = {**_ATTENTION, "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate"}
_EXPERTS = {
    "ffn_gate_exps": "mlp.experts.gate_up_proj", "ffn_up_exps": "mlp.experts.gate_up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
}  # fmt: skip
_PHI2_OUTER = {**_OUTER, "output_norm": "model.final_layernorm"}
_PHI2 = {
    **_ATTENTION, "attn_output": "self_attn.dense", "ffn_up": "mlp.fc1", "ffn_down": "mlp.fc2",
}  # fmt: skip
_GPT2_OUTER = {
    "token_embd": "transformer.wte", "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f", "output": "lm_head",
}  # fmt: skip
_GPT2_INNER = {
    "attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
}  # fmt: skip

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(
        "llama", config.llama, "model.layers", _OUTER, _INNER,
        interleaved=frozenset({"attn_q", "attn_k"}),
    ),
    "qwen2": Architecture("qwen2", config.qwen, "model.layers", _OUTER, _INNER),
    "qwen3": Architecture("qwen3", config.qwen, "model.layers", _OUTER, {**_INNER, **_NORMED}),
    "qwen3moe": Architecture(
        "qwen3_moe", config.qwen3_moe, "model.layers", _OUTER, {**_ROUTED, **_NORMED}, _EXPERTS
    ),
    "gemma": Architecture(
        "gemma", config.gemma, "model.layers", _OUTER, _INNER, plus_one=True, divided=False
    ),
    "gemma2": Architecture(
        "gemma2", config.gemma2, "model.layers", _OUTER, _GEMMA2, plus_one=True, divided=False
    ),
    "gemma3": Architecture(
        "gemma3_text", config.gemma3, "model.layers", _OUTER, {**_GEMMA2, **_NORMED},
        plus_one=True, divided=False,
    ),
    "phi2": Architecture("phi", config.phi2, "model.layers", _PHI2_OUTER, _PHI2, divided=False),
    "phi3": Architecture("phi3", config.phi3, "model.layers", _OUTER, _PHI3),
    "gpt2": Architecture(
        "gpt2", config.gpt2, "transformer.h", _GPT2_OUTER, _GPT2_INNER,
        turned=frozenset({"attn_qkv", "attn_output", "ffn_up", "ffn_down"}),
    ),
}  # fmt: skip


# llama with experts.
_WITH_EXPERTS = Architecture(
    "mixtral", config.mixtral, "model.layers", _OUTER, _ROUTED, _EXPERTS,
    interleaved=frozenset({"attn_q", "attn_k"}),
)  # fmt: skip


def architecture_of(file: GgufFile) -> tuple[Architecture, dict[str, Any]]:
    """The architecture of a file, and its config. Raises RefusedModelError for one that is not
    known, by its name, and CorruptFileError."""
    name = str(file.metadata.get("general.architecture"))
    found = ARCHITECTURES.get(name)
    if found is None:
        raise refused(
            f"the architecture {name[:40]!r}", f"those known are {', '.join(ARCHITECTURES)}"
        )
    facts = GgufFacts(name, file)
    if name == "llama" and facts.whole("expert_count", 0):
        found = _WITH_EXPERTS
    return found, {"model_type": found.family, **found.config(facts)}


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

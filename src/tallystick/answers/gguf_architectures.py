"""The architectures of GGUF files: their tensors by the names of transformers' parameters, and in
what the file's form differs (ANSWERS 12.2, 12.3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tallystick.answers import gguf_config as config
from tallystick.answers.gguf_config import GgufFacts, refused
from tallystick.disk.gguf import GgufFile

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

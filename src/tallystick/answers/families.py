"""Which models answers are given with, by their config alone, and why others are refused.

An answer is one program over the whole text, and a token's logits may depend on nothing else than
the tokens before it. So what the length of a text switches, and what other rows of a batch decide,
is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.answers.encoders import ENCODERS, output_of
from tallystick.errors import RefusedModelError
from tallystick.limits import LIMITS

# By config's `model_type`: the one architecture of it that gives logits of a next token, and calls
# the attention that transformers' AttentionInterface chooses. SmolLM and SmolLM2 are "llama".
FAMILIES: Mapping[str, str] = {
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}

# The frequencies of these follow from the config.
_ROPES = ("default", "linear", "llama3", "yarn")
_BY_LENGTH = {
    "dynamic": "its frequencies change with the length of the text (dynamic NTK)",
    "longrope": "it has one set of frequencies for short texts and one for long ones",
    "su": "it has one set of frequencies for short texts and one for long ones",
}

_ATTENTION = (
    ("is_causal", False, "attention in both directions"),
    ("use_bidirectional_attention", True, "attention in both directions"),
    ("add_cross_attention", True, "attention to an encoder"),
    ("is_encoder_decoder", True, "an encoder"),
)


def _refused(what: str, why: str, action: str) -> RefusedModelError:
    return RefusedModelError(f"The model has {what}: {why}.", action)


def _ropes(config: Mapping[str, Any]) -> list[Any]:
    """The tables of rotary embeddings, under the names that transformers 4 and 5 give them."""
    found = []
    for key in ("rope_scaling", "rope_parameters"):
        table = config.get(key)
        if isinstance(table, Mapping):
            inner = [value for value in table.values() if isinstance(value, Mapping)]
            found.extend(inner or [table])
    return found


def _check_ropes(config: Mapping[str, Any]) -> None:
    for table in _ropes(config):
        kind = table.get("rope_type", table.get("type", "default"))
        if kind not in _ROPES:
            why = _BY_LENGTH.get(
                str(kind), "this build does not know what its frequencies depend on"
            )
            raise _refused(
                f"rotary embeddings of type {str(kind)[:40]!r}",
                why,
                f"Use a model with one of {', '.join(_ROPES)}.",
            )


def _refuse_quantised(config: Mapping[str, Any]) -> None:
    if config.get("quantization_config") is not None:
        raise _refused(
            "quantised weights (quantization_config)",
            "only float32, bfloat16 and float16 are read",
            "Use the weights before quantisation.",
        )


def family_of(config: Mapping[str, Any]) -> str:
    """The family of a model by its config.json. Raises RefusedModelError."""
    if "auto_map" in config:
        raise _refused(
            "code of its own (auto_map)",
            "trust_remote_code is never given",
            f"Use a model of {', '.join((*FAMILIES, *ENCODERS))} without auto_map.",
        )
    labels = config.get("num_labels", 1)
    if type(labels) is not int or not 1 <= labels <= LIMITS.text_places:
        raise _refused(  # transformers makes a name for each
            f"{str(labels)[:40]} labels (num_labels)",
            f"there are from 1 to {LIMITS.text_places}",
            "Use a config.json as save_pretrained wrote it.",
        )
    family = str(config.get("model_type"))
    if family in ENCODERS:
        _refuse_quantised(config)
        output_of(config)
        return family
    if family not in FAMILIES:
        raise _refused(
            f"the type {family[:40]!r}",
            "it is none of those whose attention is known here",
            f"Use a model of {', '.join((*FAMILIES, *ENCODERS))}.",
        )
    architectures = config.get("architectures") or [FAMILIES[family]]
    if architectures != [FAMILIES[family]]:
        raise _refused(
            f"the architecture {str(architectures)[:80]}",
            "answers need the logits of a next token",
            f"Use a directory of {FAMILIES[family]}.",
        )
    _refuse_quantised(config)
    for key, value, what in _ATTENTION:
        if config.get(key) is value:
            raise _refused(
                f"{what} ({key})",
                "a token may depend on the tokens before it only",
                f"Use a model of {FAMILIES[family]} without it.",
            )
    _check_ropes(config)
    return family

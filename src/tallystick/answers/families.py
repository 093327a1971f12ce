"""Which models give answers or encodings, by the files of their directory alone, and why others are
refused.

An answer is one program over the whole text, and a token's logits may depend on nothing else than
the tokens before it. So what the length of a text switches, and what other rows of a batch decide,
is refused by name.

An embedding is what the files of sentence-transformers make of a model: which rows are pooled, and
whether the vector is normalised. Class numbers are those of a model with a classifier. What such a
file asks for and no program here does is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tallystick.answers.layout import CLASSES, EMBEDDING
from tallystick.disk.regular import present, read_file
from tallystick.errors import CorruptFileError, RefusedModelError
from tallystick.limits import LIMITS

# By config's `model_type`: what its architectures give.
ENCODERS: Mapping[str, Mapping[str, str]] = {
    "bert": {"BertModel": EMBEDDING, "BertForSequenceClassification": CLASSES},
    "camembert": {"CamembertModel": EMBEDDING, "CamembertForSequenceClassification": CLASSES},
    "distilbert": {"DistilBertModel": EMBEDDING, "DistilBertForSequenceClassification": CLASSES},
    "electra": {"ElectraModel": EMBEDDING, "ElectraForSequenceClassification": CLASSES},
    "roberta": {"RobertaModel": EMBEDDING, "RobertaForSequenceClassification": CLASSES},
    "xlm-roberta": {"XLMRobertaModel": EMBEDDING, "XLMRobertaForSequenceClassification": CLASSES},
}
# These number the places of a text from the pad token's number and one on.
AFTER_PAD = frozenset({"camembert", "roberta", "xlm-roberta"})

MODULES, SENTENCES = "modules.json", "sentence_bert_config.json"
PROMPTS, POOLING = "config_sentence_transformers.json", "config.json"
# By the names of a pooling's config.json.
_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
MODES = tuple(sorted(_MODES.values()))
_STEPS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_FOLDER = re.compile(r"[A-Za-z0-9_]+")


@dataclass(frozen=True)
class Encoding:
    """What an encoder makes of a text: `values` numbers, of the set `set`.

    Of an embedding `mode` says which rows are pooled (of MODES), and `normalised` whether the
    vector is divided by its length; `most` is how many tokens the files allow, None for as many as
    the model has places. `labels` are the names of the classes.
    """

    set: str
    values: int
    mode: str | None = None
    normalised: bool = False
    most: int | None = None
    labels: tuple[str, ...] = ()


def output_of(config: Mapping[str, Any]) -> str:
    """The set of an encoder's config.json, whose `model_type` is one of ENCODERS. Raises
    RefusedModelError."""
    known = ENCODERS[str(config.get("model_type"))]
    named = config.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or named[0] not in known:
        _refused_encoder(
            f"the architecture {str(named)[:80]}",
            "an encoder gives an embedding or class numbers",
            f"Use a directory of {' or '.join(known)}.",
        )
    for key in ("is_decoder", "add_cross_attention", "is_encoder_decoder"):
        if config.get(key):
            _refused_encoder(key, "an encoder reads one text in both directions", "Use an encoder.")
    if config.get("position_embedding_type", "absolute") != "absolute":
        _refused_encoder(
            f"places of type {str(config['position_embedding_type'])[:40]!r}",
            "its attention takes more than queries, keys and values",
            "Use a model with absolute places.",
        )
    return known[named[0]]


def encoding_of(directory: Path, config: Mapping[str, Any], settings: Any) -> Encoding:
    """What the encoder in `directory` gives. `settings` is transformers' config of its config.json.

    Raises RefusedModelError for what no program here does, CorruptFileError, StorageError."""
    if output_of(config) == CLASSES:
        labels = settings.id2label
        names = tuple(str(labels.get(n, f"LABEL_{n}")) for n in range(settings.num_labels))
        if any("\ud800" <= char <= "\udfff" for name in names for char in name):
            raise CorruptFileError("A label in id2label is not text.", "Save the model again.")
        return Encoding(CLASSES, settings.num_labels, labels=names)
    mode, normalised = _pooling(directory, int(settings.hidden_size))
    return Encoding(EMBEDDING, int(settings.hidden_size), mode, normalised, _most(directory))


def _pooling(directory: Path, width: int) -> tuple[str, bool]:
    """Which rows are pooled, and whether the vector is normalised."""
    if not present(directory / MODULES):
        _refused_encoder(
            f"no {MODULES}",
            "nothing says how an embedding is made of the rows of a text",
            "Use a directory as sentence-transformers saves it.",
        )
    listed = _json(directory / MODULES)
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise CorruptFileError(f"{MODULES} is not a list of modules.", "Save the model again.")
    steps = [str(one.get("type")).rpartition(".")[2] for one in listed]
    if steps not in _STEPS:
        _refused_encoder(
            f"the modules {', '.join(steps)[:120]}",
            "only a transformer, a pooling and a normalisation are known here",
            "Use a model of these.",
        )
    if listed[0].get("path") != "":
        _refused_encoder(
            "its transformer in a folder of its own",
            "config.json is read from the model's directory",
            "Move the transformer's files there, and set its path to an empty text.",
        )
    folder = str(listed[1].get("path"))
    if not _FOLDER.fullmatch(folder):
        raise CorruptFileError(f"{MODULES} names no folder of the model.", "Save the model again.")
    table = _table(directory / folder / POOLING)
    modes = sorted(n for n, on in table.items() if n.startswith("pooling_mode_") and on)
    if len(modes) != 1 or modes[0] not in _MODES:
        _refused_encoder(
            f"the pooling {', '.join(modes)[:120] or 'of no mode'}",
            "exactly one of cls, max and mean is known here",
            "Use a model with one of these.",
        )
    if table.get("word_embedding_dimension", width) != width:
        raise CorruptFileError(
            f"{folder}/{POOLING} has a different width than the model.", "Save the model again."
        )
    return _MODES[modes[0]], steps[-1] == "Normalize"


def _most(directory: Path) -> int | None:
    """The most tokens of a text. A longer one is refused, and never cut."""
    if present(directory / PROMPTS):
        table = _table(directory / PROMPTS)
        if table.get("default_prompt_name") is not None:
            _refused_encoder(
                "a prompt by default (default_prompt_name)",
                "words that a client has not sent would be put before its text",
                "Set default_prompt_name to null, and send the prompt with the text.",
            )
    if not present(directory / SENTENCES):
        return None
    table = _table(directory / SENTENCES)
    if table.get("do_lower_case"):
        _refused_encoder(
            f"do_lower_case in {SENTENCES}",
            "the text would be changed before its tokenizer sees it",
            "Use a tokenizer that lowers the case itself.",
        )
    most = table.get("max_seq_length")
    if most is not None and (type(most) is not int or most < 1):
        raise CorruptFileError(
            f"max_seq_length in {SENTENCES} is not a valid length.", "Save the model again."
        )
    return most


def _json(path: Path) -> Any:
    data = read_file(path, LIMITS.manifest_bytes, "file of the model")
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise CorruptFileError(f"{path} is not JSON.", "Save the model again.") from None


def _table(path: Path) -> dict[str, Any]:
    found = _json(path)
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} is not a JSON object.", "Save the model again.")
    return found


def _refused_encoder(what: str, why: str, action: str) -> NoReturn:
    raise RefusedModelError(f"The model has {what}: {why}.", action)


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

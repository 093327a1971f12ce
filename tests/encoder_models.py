"""Small encoders of the families that encodings are given with, and their files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VOCABULARY, PLACES, CLASSES = 48, 320, 3
_BERT = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 3, "max_position_embeddings": PLACES,
}  # fmt: skip
_DISTILBERT = {
    "vocab_size": VOCABULARY, "dim": 24, "hidden_dim": 40, "n_layers": 2, "n_heads": 3,
    "max_position_embeddings": PLACES,
}  # fmt: skip
# By family: the class of the config, the beginning of its models' names, and what differs.
CONFIGS: Mapping[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "Bert", {**_BERT, "hidden_act": "gelu_new"}),
    "camembert": ("CamembertConfig", "Camembert", {**_BERT, "pad_token_id": 1}),
    "distilbert": ("DistilBertConfig", "DistilBert", _DISTILBERT),
    "electra": ("ElectraConfig", "Electra", {**_BERT, "embedding_size": 16}),
    "roberta": ("RobertaConfig", "Roberta", {**_BERT, "pad_token_id": 1}),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRoberta", {**_BERT, "pad_token_id": 1}),
}
LABELS = {0: "sad", 1: "glad", 2: "neither"}


def save_encoder(
    family: str,
    directory: Path,
    mode: str = "mean",
    normalised: bool = True,
    most: int | None = None,
    **changes: Any,
) -> Any:
    """A directory of an encoder with random weights and the files of sentence-transformers; the
    module."""
    module = _saved(family, "Model", directory, changes)
    write_modules(directory, mode, normalised, most)
    return module


def save_classifier(family: str, directory: Path, **changes: Any) -> Any:
    """A directory of a classifier with random weights; the module."""
    changes = {"num_labels": CLASSES, "id2label": LABELS, **changes}
    return _saved(family, "ForSequenceClassification", directory, changes)


def _saved(family: str, head: str, directory: Path, changes: Mapping[str, Any]) -> Any:
    import torch
    import transformers

    config, begins, options = CONFIGS[family]
    torch.manual_seed(7)
    made = getattr(transformers, config)(**{**options, **changes})
    module = getattr(transformers, begins + head)(made).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    module.save_pretrained(directory)
    return module


def write_modules(
    directory: Path, mode: str = "mean", normalised: bool = True, most: int | None = None
) -> None:
    """The files of sentence-transformers."""
    steps = ["Transformer", "Pooling", *(["Normalize"] if normalised else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    listed = [
        {"idx": n, "name": str(n), "path": paths[n], "type": f"sentence_transformers.models.{step}"}
        for n, step in enumerate(steps)
    ]
    (directory / "modules.json").write_text(json.dumps(listed))
    names = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
    table = {f"pooling_mode_{name}": mode == short for short, name in names.items()}
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(table))
    sentences = {"max_seq_length": most, "do_lower_case": False}
    (directory / "sentence_bert_config.json").write_text(json.dumps(sentences))

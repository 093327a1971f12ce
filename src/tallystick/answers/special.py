"""The special tokens of a model, as the files of its tokenizer name them (ANSWERS 4.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.answers.statement import SPECIAL_SUFFIX, SpecialToken
from tallystick.data.sources.tokenizer import TokenizerFile, tokenizer_of

TOKENIZER = "tokenizer.json"
# The later one decides where both name a token.
_CONFIG, _MAP = "tokenizer_config.json", "special_tokens_map.json"


def model_tokenizer(files: Mapping[str, bytes]) -> TokenizerFile | None:
    """The tokenizer in the model's files, executed in a process of its own; None without a
    tokenizer.json. Raises UsageError for one that is malformed, CannotCheckError."""
    return tokenizer_of(files[TOKENIZER], Path(TOKENIZER)) if TOKENIZER in files else None


def special_tokens(
    files: Mapping[str, bytes], tokenizer: TokenizerFile | None
) -> dict[str, SpecialToken]:
    """The special tokens by name, as the tokenizer's own files have them (ANSWERS 4.3).
    `tokenizer` is the `model_tokenizer` of these files."""
    named: dict[str, str] = {}
    for file in (_CONFIG, _MAP):
        for name, value in _object(files.get(file)).items():
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith(SPECIAL_SUFFIX) and isinstance(text, str):
                named[name] = text
    return {
        name: SpecialToken(text, None if tokenizer is None else tokenizer.token(text))
        for name, text in named.items()
    }


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        found = {}
    return found if isinstance(found, dict) else {}

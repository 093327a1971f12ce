"""The special tokens of a model, as the files of its tokenizer name them (ANSWERS 4.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.answers.statement import SPECIAL_SUFFIX, SpecialToken
from tallystick.data.sources.tokenizer import tokenizer_of

TOKENIZER = "tokenizer.json"
# The later one decides where both name a token.
_CONFIG, _MAP = "tokenizer_config.json", "special_tokens_map.json"


def special_tokens(files: Mapping[str, bytes]) -> dict[str, SpecialToken]:
    """The special tokens by name, as the tokenizer's own files have them (ANSWERS 4.3).

    Raises UsageError for a tokenizer.json that is malformed."""
    named: dict[str, str] = {}
    for file in (_CONFIG, _MAP):
        for name, value in _object(files.get(file)).items():
            text = value.get("content") if isinstance(value, dict) else value
            if name.endswith(SPECIAL_SUFFIX) and isinstance(text, str):
                named[name] = text
    if TOKENIZER not in files:
        return {name: SpecialToken(text, None) for name, text in named.items()}
    tokenizer = tokenizer_of(files[TOKENIZER], Path(TOKENIZER))
    return {name: SpecialToken(text, tokenizer.token(text)) for name, text in named.items()}


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(data) if data else {}
    except (ValueError, RecursionError):
        found = {}
    return found if isinstance(found, dict) else {}

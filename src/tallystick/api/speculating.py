"""Speculation, as a caller asks for it: by lookup, or by the directory of a smaller model.

It makes answers faster or slower, and changes no bit of them (generation/drafters.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tallystick.answers.model import Model, open_model
from tallystick.answers.special import TOKENIZER
from tallystick.errors import UsageError
from tallystick.generation.drafters import Drafter, DraftModel, PromptLookup
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork

# What decides which token is which, where there is no tokenizer.json.
_OLDER = ("added_tokens.json", "merges.txt", "tokenizer.model", "vocab.json")
_NAME = "lookup"


@dataclass(frozen=True)
class DraftDirectory:
    """The transformers directory of a smaller model, which proposes `most` tokens at a time. Its
    keys and values take up to `memory` bytes."""

    directory: Path
    most: int = 3
    memory: int = 256 << 20


Speculation = PromptLookup | DraftDirectory


def speculation_of(speculate: str | None, draft: Path | None) -> Speculation | None:
    """What `--speculate` (`lookup` or `lookup:K`) and `--draft` say. Raises UsageError."""
    if speculate is not None and draft is not None:
        raise UsageError(
            "speculate and draft cannot be used together. Tokens are guessed either by lookup or "
            "by a smaller model.",
            "Leave one of them out.",
        )
    if draft is not None:
        return DraftDirectory(draft)
    if speculate is None:
        return None
    name, colon, most = speculate.partition(":")
    if name != _NAME or bool(colon) != (most.isascii() and most.isdecimal()) or len(most) > 4:
        raise UsageError(
            f"speculate={speculate[:80]!r} is not known.",
            f"Use {_NAME}, or {_NAME}:K to guess up to K tokens at a time.",
        )
    return PromptLookup(most=int(most)) if colon else PromptLookup()


def drafter_of(
    speculation: Speculation | None, model: Model, contract: str, threads: int | None
) -> Drafter | None:
    """Who proposes tokens for answers of `model`. Raises UsageError for a smaller model with other
    tokens, and as `open_model`."""
    if not isinstance(speculation, DraftDirectory):
        return speculation
    smaller = open_model(speculation.directory)
    _check_tokens(model.files, smaller.files)
    network = ModelNetwork(smaller, contract)
    engine = AnswerEngine(network, threads=threads, memory=speculation.memory)
    return DraftModel(engine, speculation.most)


def _check_tokens(ours: Mapping[str, bytes], theirs: Mapping[str, bytes]) -> None:
    one = TOKENIZER in ours or TOKENIZER in theirs
    for name in (TOKENIZER,) if one else _OLDER:
        if ours.get(name) != theirs.get(name):
            raise UsageError(
                f"The draft model's tokenizer is not the model's: {name} differs.",
                "Use a smaller model of the same family.",
            )

"""What recipes of language models share: text as records of tokens, bytes or a tokenizer's; and
what they are trained for: the next token, or masked words (Devlin et al. 2018).

A text that every Python installation has is the standard library's documentation strings. They
differ between Python versions. The job fixes the bytes by digest, so that the version matters only
to the person who makes the job.

The masks are drawn from the job's generator.
In training each word is chosen with the probability `share`, anew at every step. Of the chosen
words eight tenths become the mask, one tenth any word, and one tenth stays: one uniform number of a
word decides both. So the masks are nodes of the program, and a lie about them is disputed as any
other. An evaluation draws nothing: it masks every n-th word, n = round(1 / share), from place
n // 2 on. So two validation losses are about the same words.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.data.frozen import Frozen
from tallystick.data.sources.text import refuse_json
from tallystick.disk.regular import read_file
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.recipes.base import (
    Built,
    RecipeData,
    Sources,
    about_tokenizer,
    greatest,
    is_weight,
    opened_tokenizer,
    require_fields,
)
from tallystick.job.recipes.settings import StepSettings, setting, step_options
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program

if TYPE_CHECKING:
    import torch
    from torch import nn

TEXT_LIMIT = 1 << 30
DEFAULT_BYTES = 1_000_000


def stdlib_docstrings(limit: int = DEFAULT_BYTES) -> str:
    """Module, class and function docstrings of the standard library, in file-name order.

    The text has about `limit` characters at most. The function imports no module: it only parses
    sources.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    parts: list[str] = []
    size = 0
    sources = sorted(root.glob("*.py")) + sorted(root.glob("[a-z]*/*.py"))  # our own Python's
    for path in sources:
        if "test" in path.parts[-2] or "site-packages" in path.parts or size > limit:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text and len(text) > 40:
                    parts.append(text)
                    size += len(text) + 2
    if size < 10_000:
        raise CannotCheckError(
            f"The standard library at {root} contains no documentation strings.",
            "Pass a text with --text FILE.",
        )
    return "\n\n".join(parts)


def read_text(path: Path) -> bytes:
    """The bytes of a text file of any encoding. Raises StorageError, CorruptFileError, and
    UsageError for an empty file and for one that is JSON by its name."""
    refuse_json(path, "name a copy of it .txt")
    data = read_file(path, TEXT_LIMIT, "text")
    if not data:
        raise UsageError(f"{path} is empty.", "Use a text that is not empty.")
    return data


def cut(tokens: Array, width: int, stride: int) -> Array:
    """Windows of `width` tokens, (N, width), whose first tokens are `stride` apart: 1 to `width`.

    A rest that does not fill a window is left out. Raises UsageError for a text that is too short.
    """
    count = (len(tokens) - width) // stride + 1
    if count < 1:
        raise UsageError(
            f"The text has {len(tokens)} tokens, too few for a window of {width}.",
            "Use a longer text or a smaller block_size.",
        )
    starts = np.arange(count)[:, None] * stride
    windows: Array = tokens[starts + np.arange(width)[None, :]]
    return windows


SOURCES = ("text", "data")
FIELD = "tokens"
# The standard library is asked for no less, so that it can tell that its texts were stripped.
_LEAST_BYTES = 1 << 14


@dataclass(frozen=True)
class TextSettings(StepSettings):
    """Keys of `--set` of a model of text."""

    text_bytes: int = setting(1_000_000, "most bytes of the text to use; 0 = all", low=0)
    validation: float = setting(0.05, "share of the records held out", low=0, high=0.9)


def tokens_of(s: Any, sources: Sources) -> tuple[Array, dict[str, str]]:
    """The tokens of the text, i64[n], and what a job says about them. Raises UsageError."""
    if sources.data is not None:
        raise UsageError(
            f"{sources.data} is not a frozen data set.", "Make one with `tallystick data freeze`."
        )
    if sources.text is not None:
        data, origin = read_text(sources.text), f"text file {sources.text.name}"
    else:
        wanted = max(s.text_bytes, _LEAST_BYTES) if s.text_bytes else 1 << 30
        data = stdlib_docstrings(wanted).encode("utf-8")
        origin = "documentation strings of the Python standard library"
    if s.text_bytes:
        data = data[: s.text_bytes]
    tokenizer = opened_tokenizer(sources)
    if tokenizer is None:
        about = {"source": origin, "text_bytes": str(len(data))}
        return np.frombuffer(data, dtype=np.uint8).astype(np.int64), about
    if s.text_bytes and len(data) == s.text_bytes:
        data = whole_characters(data)
    tokens = tokenizer.encode_pieces(data, origin)
    most = int(tokens.max(initial=0))
    if most >= s.vocab_size:
        raise UsageError(
            f"The text contains the token {most} of {tokenizer.name}, but the model has "
            f"{s.vocab_size} tokens.",
            f"Add --set vocab_size={tokenizer.count}.",
        )
    about = {"source": origin, "text_bytes": str(len(data)), **about_tokenizer(tokenizer)}
    return tokens, about


def whole_characters(data: bytes) -> bytes:
    """UTF-8 without a last character that was cut: at most three bytes less."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character
        length = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
        return data[:-back] if length > back and byte < 0xF8 else data
    return data


def load_windows(s: Any, sources: Sources, width: int, stride: int) -> RecipeData:
    """Records `tokens` i64[width], the first tokens `stride` apart; the last ones are held out.

    Raises UsageError for a text that is too short."""
    tokens, about = tokens_of(s, sources)
    records = cut(tokens, width, stride)
    held_out = max(s.batch_size, round(len(records) * s.validation))
    if len(records) <= held_out:
        raise UsageError(
            f"{about['text_bytes']} bytes of text give {len(records)} records, too few to hold "
            f"out {held_out}.",
            "Use a longer text, or a smaller block_size or batch_size.",
        )
    return RecipeData({FIELD: records[:-held_out]}, {FIELD: records[-held_out:]}, about)


def next_token_data(s: Any, sources: Sources, seed: int) -> RecipeData:
    """Windows of one token more than `block_size`, which overlap by one."""
    return load_windows(s, sources, s.block_size + 1, s.block_size)


def check_next_token(s: Any, frozen: Frozen) -> None:
    """Raise UsageError unless the records are tokens i64[block_size + 1] of the vocabulary."""
    require_fields(frozen, {FIELD: ("i64", 1)}, FIELD)
    length = frozen.schema.fields[0].shape[0]
    if length != s.block_size + 1:
        raise UsageError(
            f"The records have {length} tokens. They need one more than block_size={s.block_size}.",
            f"Add --set block_size={length - 1}.",
        )
    check_vocabulary(s, frozen, FIELD)


def check_vocabulary(s: Any, frozen: Frozen, field: str) -> None:
    """Raise UsageError unless no token of the frozen records is beyond the model's."""
    most = greatest(frozen, field)
    if most >= s.vocab_size:
        raise UsageError(
            f"The data contains the token {most}, but the model has {s.vocab_size} tokens.",
            f"Add --set vocab_size={most + 1}, or the tokenizer's number of tokens.",
        )


def vocabulary(sources: Sources) -> dict[str, str]:
    """The setting `vocab_size` that a tokenizer file gives where `--set` gives none."""
    tokenizer = opened_tokenizer(sources)
    return {} if tokenizer is None else {"vocab_size": str(max(256, tokenizer.count))}


InitialState = Callable[[Mapping[str, TensorType], int], dict[str, Array]]


def capture_next_token(module: nn.Module, optimizer: Any, s: Any) -> tuple[Any, Program, Program]:
    """The captured step, the validation loss and the forward pass of `module`, which gives logits
    f32[n, block_size, vocab_size] for tokens i64[n, block_size]. It may be on the meta device: no
    weight is read. The loss is the mean cross-entropy of each next token."""
    from torch.nn import functional as F

    from tallystick.program.capture.api import capture, capture_eval, capture_forward

    def loss(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        tokens = batch[FIELD]
        logits = module(tokens[:, :-1])
        return F.cross_entropy(logits.reshape(-1, s.vocab_size), tokens[:, 1:].reshape(-1))

    def forward(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = module(batch[FIELD])
        return out

    module.train()
    batch = {FIELD: ((s.batch_size, s.block_size + 1), "i64")}
    return (
        capture(module, loss, batch, optimizer, **step_options(s)),
        capture_eval(module, loss, batch),
        capture_forward(module, {FIELD: ((1, s.block_size), "i64")}, forward),
    )


def build_next_token(
    module: nn.Module,
    optimizer: Any,
    rates: dict[str, Any],
    s: Any,
    initial_state: InitialState,
    seed: int,
) -> Built:
    """The same with its first values, `initial_state(types, seed)`."""
    captured, evaluation, forward = capture_next_token(module, optimizer, s)
    types = {n: t for n, t in captured.program.state_types.items() if is_weight(n)}

    def state() -> dict[str, Array]:
        found: dict[str, Array] = captured.state_for(initial_state(types, seed))
        return found

    return Built(captured, state, rates, evaluation, forward)


IDS = "input_ids"
_MASKED, _REPLACED = 0.8, 0.9
_LEFT_OUT = -100


def masked_loss(
    module: nn.Module,
    ids: torch.Tensor,
    attention: torch.Tensor | None,
    mask: int,
    share: float,
    words: int,
) -> torch.Tensor:
    """The mean cross-entropy of the chosen words of `ids`, i64[n, length]; 0 where none is chosen.

    Where `attention` is 0 no word is chosen. `module(ids, attention)` gives logits f32[n, length,
    words].
    """
    import torch
    from torch.nn import functional as F

    if module.training:
        drawn = torch.rand(ids.shape)
        chosen = drawn < share
        shown = torch.where(drawn < share * _MASKED, mask, ids)
        other = chosen & (drawn >= share * _MASKED) & (drawn < share * _REPLACED)
        shown = torch.where(other, torch.randint(0, words, ids.shape), shown)
    else:
        every = round(1 / share)
        places = torch.arange(ids.shape[1], device=ids.device)
        chosen = (places % every == min(every // 2, ids.shape[1] - 1)).expand(ids.shape)
        shown = torch.where(chosen, mask, ids)
    if attention is not None:
        chosen = chosen & (attention != 0)
        shown = torch.where(chosen, shown, ids)
    labels = torch.where(chosen, ids, _LEFT_OUT)
    logits = module(shown, attention).flatten(0, 1)
    total = F.cross_entropy(logits, labels.flatten(), ignore_index=_LEFT_OUT, reduction="sum")
    return total / chosen.sum().clamp_min(1)

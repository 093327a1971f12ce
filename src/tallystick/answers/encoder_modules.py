"""An encoder's transformers module, and what its program computes (ANSWERS 11.5).

Its attention is the three nodes of NUMERICS 18 in both directions. Which keys are there only the
record knows, so what belongs to an absent key is taken out around these nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.answers.families import AFTER_PAD, ENCODERS, Encoding
from tallystick.answers.layout import EMBEDDING
from tallystick.errors import RefusedModelError
from tallystick.program.capture import custom_ops
from tallystick.program.capture.api import capture_forward
from tallystick.program.ir import Program

NAME = "tallystick-encoder"
_SMALLEST_LENGTH = 1e-12  # of a vector that is normalised (ANSWERS 11.6)
_IDLE = frozenset({"position_ids"})


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention in both directions, as AttentionInterface calls it. `attention_mask` is
    bool[1, 1, 1, keys]: which keys are present.

    Raises RefusedModelError for what the nodes cannot say.
    """
    known = {name for name, given in others.items() if given is not None} - _IDLE
    if attention_mask is None or getattr(module, "is_causal", False) or dropout or known:
        named = min(known) if known else "one direction, dropout, or no mask"
        raise RefusedModelError(
            f"The attention of {type(module).__name__} takes {named}, which encodings do not "
            "support.",
            f"Use one of these models: {', '.join(ENCODERS)}.",
        )
    scale = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
    s = custom_ops.attention_scores(query, key, None, False, 0, scale, 0.0, 0)
    s = torch.where(attention_mask, s, -math.inf)
    p = custom_ops.attention_weights(s, None, False, 0, 0)
    v = torch.where(attention_mask.transpose(2, 3), value, 0.0)
    return (custom_ops.attention_values(p, v, False, 0, 0) + 0.0).transpose(1, 2), None


def encoder_module(settings: Any, output: str) -> Any:
    """The module of an encoder's config on the device that torch is on, without the buffers that
    number its places and token types: the program gives them."""
    from transformers import AttentionInterface, AutoModel, AutoModelForSequenceClassification

    AttentionInterface.register(NAME, attend)
    made = {"attn_implementation": NAME, "dtype": torch.float32}
    if output == EMBEDDING:
        module: Any = AutoModel.from_config(settings, **made)  # type: ignore[no-untyped-call]
        if hasattr(module, "pooler"):
            module.pooler = None  # no embedding reads it
    else:
        auto: Any = AutoModelForSequenceClassification
        module = auto.from_config(settings, **made)
    for child in module.modules():
        for name in ("position_ids", "token_type_ids"):
            child._buffers.pop(name, None)
    return module


def encoded(encoding: Encoding) -> Callable[[Any, Mapping[str, Tensor]], Tensor]:
    """The values, f32[D], of the batch: `text` [L], whose first `length` [1] places are present."""

    def forward(module: Any, batch: Mapping[str, Tensor]) -> Tensor:
        text, count = batch["text"], batch["length"]
        numbers = torch.arange(text.shape[0], device=text.device)
        present = numbers < count
        given = {name: x[None] for name, x in _given(module, text, numbers).items()}
        made = _made(encoding, module, given, present[None, None, None])[0]
        return made if encoding.set != EMBEDDING else _embedding(encoding, made, present, count)

    return forward


def of_rows(encoding: Encoding) -> Callable[[Any, Mapping[str, Tensor]], Tensor]:
    """What is made of each row, f32[rows, width], where every row is a text of one place: of
    `token` at `place`, both [rows, 1]. Only attention reads other rows of a text, so the last
    hidden state of any text is this one with its attention put in. Class numbers are those of a
    text that begins with the row."""

    def forward(module: Any, batch: Mapping[str, Tensor]) -> Tensor:
        places = batch["place"]
        given = _given(module, batch["token"], places)
        made = _made(encoding, module, given, (places >= 0)[:, None, None])
        return made[:, 0] if encoding.set == EMBEDDING else made

    return forward


def pooling(encoding: Encoding, places: int, contract: str) -> Program:
    """The embedding, f32[D], of the last hidden state `rows` [places, D], whose first `length` [1]
    are of the text."""

    def forward(_: Any, batch: Mapping[str, Tensor]) -> Tensor:
        rows, count = batch["rows"], batch["length"]
        return _embedding(encoding, rows, torch.arange(places, device=rows.device) < count, count)

    batch = {"rows": ((places, encoding.values), "f32"), "length": ((1,), "i64")}
    return capture_forward(nn.Module(), batch, forward, contract)


def _given(module: Any, tokens: Tensor, numbers: Tensor) -> dict[str, Tensor]:
    """What a module reads of tokens at the places of these numbers."""
    config = module.config
    first = config.pad_token_id + 1 if config.model_type in AFTER_PAD else 0
    given = {"input_ids": tokens, "position_ids": numbers + first}
    if config.model_type != "distilbert":  # it has no types
        given["token_type_ids"] = torch.zeros_like(tokens)
    return given


def _made(encoding: Encoding, module: Any, given: Mapping[str, Tensor], present: Tensor) -> Tensor:
    """The last hidden states or the class numbers of texts; `present` is their mask."""
    called = module(**given, attention_mask=present)
    made: Tensor = called.last_hidden_state if encoding.set == EMBEDDING else called.logits
    return made


def _embedding(encoding: Encoding, rows: Tensor, present: Tensor, count: Tensor) -> Tensor:
    pooled = pooled_rows(rows, present, count, encoding.mode)
    if not encoding.normalised:
        return pooled
    return pooled / (pooled * pooled).sum().sqrt().clamp(min=_SMALLEST_LENGTH)


def pooled_rows(rows: Tensor, present: Tensor, count: Tensor, mode: str | None) -> Tensor:
    if mode == "cls":
        return rows[0]
    there = present[:, None]
    if mode == "max":
        return torch.where(there, rows, -math.inf).amax(0)
    return (torch.where(there, rows, 0.0).sum(0) + 0.0) / count.to(torch.float32)

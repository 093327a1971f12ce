"""What recipes train language models for: the next token, or masked words (Devlin et al. 2018).

The masks are drawn from the job's generator.
In training each word is chosen with the probability `share`, anew at every step. Of the chosen
words eight tenths become the mask, one tenth any word, and one tenth stays: one uniform number of a
word decides both. So the masks are nodes of the program, and a lie about them is disputed as any
other. An evaluation draws nothing: it masks every n-th word, n = round(1 / share), from place
n // 2 on. So two validation losses are about the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tallystick.commit.tensor import Array
from tallystick.job.recipes.base import Built, is_weight
from tallystick.job.recipes.step_settings import step_options
from tallystick.job.recipes.text_records import FIELD
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program

if TYPE_CHECKING:
    import torch
    from torch import nn

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

"""The loss of masked words (Devlin et al. 2018), whose masks are drawn from the job's generator.

In training each word is chosen with the probability `share`, anew at every step. Of the chosen
words eight tenths become the mask, one tenth any word, and one tenth stays: one uniform number of a
word decides both. So the masks are nodes of the program, and a lie about them is disputed as any
other. An evaluation draws nothing: it masks every n-th word, n = round(1 / share), from place
n // 2 on. So two validation losses are about the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn

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

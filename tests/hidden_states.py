"""A small reader of tokens, and its training by a loss that keeps a hidden state between calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tallystick

RECORDS, BATCH, EPOCHS, WIDTH, TOKENS = 16, 4, 2, 6, 9
PER_EPOCH = RECORDS // BATCH
STEPS = EPOCHS * PER_EPOCH
Make = Callable[[], Callable[..., Tensor]]


class Reader(nn.Module):
    """An embedding, a recurrent layer and a decoder; `hidden` is for a loss that keeps it here."""

    hidden: Any = None

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.rnn = kind(WIDTH, WIDTH, batch_first=True)  # type: ignore[call-arg]
        self.decoder = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor, hidden: Any = None) -> Any:
        out, hidden = self.rnn(self.embedding(tokens), hidden)
        return self.decoder(out), hidden


def text(count: int = RECORDS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return list(torch.randint(0, TOKENS, (count, 6), generator=generator))


def told(scores: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


def signed(make: Make, out: Path, accumulate: int = 1, epochs: int = EPOCHS, **given: Any) -> Any:
    module = Reader()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    return tallystick.fit(
        module, make(), text(), optimizer, batch_size=BATCH, epochs=epochs, out=out,
        progress=False, accumulate=accumulate, **given,
    )  # fmt: skip

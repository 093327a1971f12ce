"""Every loss of torch.nn, with its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tallystick_bench.coverage.case import Batch, Case, floats, integers

Draw = Callable[[torch.Generator], tuple[Tensor, ...]]

_ROWS, _CLASSES = 7, 5


def _same(g: torch.Generator) -> tuple[Tensor, ...]:
    return (floats(g, _ROWS, _CLASSES),)


def _probability(g: torch.Generator) -> tuple[Tensor, ...]:
    return (torch.rand(_ROWS, _CLASSES, generator=g),)


def _distribution(g: torch.Generator) -> tuple[Tensor, ...]:
    return (torch.softmax(floats(g, _ROWS, _CLASSES), -1),)


def _bits(g: torch.Generator) -> tuple[Tensor, ...]:
    return (integers(g, 2, _ROWS, _CLASSES).float(),)


def _signs(g: torch.Generator) -> tuple[Tensor, ...]:
    return (integers(g, 2, _ROWS, _CLASSES).float() * 2 - 1,)


def _classes(g: torch.Generator) -> tuple[Tensor, ...]:
    return (integers(g, _CLASSES, _ROWS),)


def _ignored(g: torch.Generator) -> tuple[Tensor, ...]:
    found = integers(g, _CLASSES, _ROWS)
    found[1] = -100
    return (found,)


def _pair(g: torch.Generator) -> tuple[Tensor, ...]:
    return floats(g, _ROWS, _CLASSES), integers(g, 2, _ROWS).float() * 2 - 1


def _triplet(g: torch.Generator) -> tuple[Tensor, ...]:
    return floats(g, _ROWS, _CLASSES), floats(g, _ROWS, _CLASSES)


def _pixels(g: torch.Generator) -> tuple[Tensor, ...]:
    return (integers(g, _CLASSES, _ROWS, 3, 4),)


def _several(g: torch.Generator) -> tuple[Tensor, ...]:
    found = torch.full((_ROWS, _CLASSES), -1)
    found[:, 0] = integers(g, _CLASSES, _ROWS)
    return (found,)


def _variance(g: torch.Generator) -> tuple[Tensor, ...]:
    return floats(g, _ROWS, _CLASSES), torch.rand(_ROWS, _CLASSES, generator=g) + 0.1


def _sequences(g: torch.Generator) -> tuple[Tensor, ...]:
    lengths = torch.full((3,), 9)
    return integers(g, 4, 3, 3) + 1, lengths, torch.tensor([3, 2, 3])


_WEIGHT = torch.linspace(0.5, 1.5, _CLASSES)
_SIGMOID: Callable[[Tensor], Tensor] = torch.sigmoid
_LOG: Callable[[Tensor], Tensor] = lambda x: torch.log_softmax(x, -1)  # noqa: E731

# Name: the loss, what it gets beside the prediction, and what the prediction goes through.
_MADE: dict[str, tuple[Callable[[], nn.Module], Draw, Callable[[Tensor], Tensor] | None]] = {
    "L1Loss": (nn.L1Loss, _same, None),
    "L1Loss sum": (lambda: nn.L1Loss(reduction="sum"), _same, None),
    "MSELoss": (nn.MSELoss, _same, None),
    "MSELoss none": (lambda: nn.MSELoss(reduction="none"), _same, None),
    "CrossEntropyLoss": (nn.CrossEntropyLoss, _classes, None),
    "CrossEntropyLoss ignored": (nn.CrossEntropyLoss, _ignored, None),
    "CrossEntropyLoss weight": (lambda: nn.CrossEntropyLoss(_WEIGHT), _classes, None),
    "CrossEntropyLoss smoothing": (
        lambda: nn.CrossEntropyLoss(label_smoothing=0.1), _ignored, None),
    "CrossEntropyLoss weight smoothing": (
        lambda: nn.CrossEntropyLoss(_WEIGHT, label_smoothing=0.1), _ignored, None),
    "CrossEntropyLoss soft": (nn.CrossEntropyLoss, _distribution, None),
    "CrossEntropyLoss none": (lambda: nn.CrossEntropyLoss(reduction="none"), _classes, None),
    "CrossEntropyLoss pixels": (
        nn.CrossEntropyLoss, _pixels, lambda x: x[:, :, None, None].expand(-1, -1, 3, 4)),
    "NLLLoss": (nn.NLLLoss, _classes, _LOG),
    "NLLLoss weight": (lambda: nn.NLLLoss(_WEIGHT, reduction="sum"), _classes, _LOG),
    "NLLLoss pixels": (nn.NLLLoss, _pixels,
                       lambda x: _LOG(x)[:, :, None, None].expand(-1, -1, 3, 4)),
    "PoissonNLLLoss": (nn.PoissonNLLLoss, _probability, None),
    "PoissonNLLLoss full": (lambda: nn.PoissonNLLLoss(log_input=False, full=True), _probability,
                            torch.exp),
    "GaussianNLLLoss": (nn.GaussianNLLLoss, _variance, None),
    "GaussianNLLLoss full": (lambda: nn.GaussianNLLLoss(full=True), _variance, None),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean"), _distribution, _LOG),
    "KLDivLoss log target": (
        lambda: nn.KLDivLoss(reduction="sum", log_target=True),
        lambda g: (_LOG(floats(g, _ROWS, _CLASSES)),), _LOG),
    "BCELoss": (nn.BCELoss, _probability, _SIGMOID),
    "BCELoss weight": (lambda: nn.BCELoss(_WEIGHT), _bits, _SIGMOID),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss, _bits, None),
    "BCEWithLogitsLoss weights": (
        lambda: nn.BCEWithLogitsLoss(_WEIGHT, pos_weight=_WEIGHT), _bits, None),
    "MarginRankingLoss": (lambda: nn.MarginRankingLoss(0.2),
                          lambda g: (floats(g, _ROWS), _pair(g)[1]), lambda x: x[:, 0]),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss, _signs, None),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss, _several, None),
    "HuberLoss": (lambda: nn.HuberLoss(delta=0.7), _same, None),
    "SmoothL1Loss": (nn.SmoothL1Loss, _same, None),
    "SmoothL1Loss beta": (lambda: nn.SmoothL1Loss(reduction="sum", beta=0.5), _same, None),
    "SoftMarginLoss": (nn.SoftMarginLoss, _signs, None),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss, _bits, None),
    "CosineEmbeddingLoss": (lambda: nn.CosineEmbeddingLoss(0.1), _pair, None),
    "MultiMarginLoss": (nn.MultiMarginLoss, _classes, None),
    "MultiMarginLoss p=2": (lambda: nn.MultiMarginLoss(2, 0.7, _WEIGHT), _classes, None),
    "TripletMarginLoss": (nn.TripletMarginLoss, _triplet, None),
    "TripletMarginLoss swap": (lambda: nn.TripletMarginLoss(0.5, 1.0, swap=True), _triplet, None),
    "TripletMarginWithDistanceLoss": (nn.TripletMarginWithDistanceLoss, _triplet, None),
    "CTCLoss": (nn.CTCLoss, _sequences,
                lambda x: _LOG(x)[None].repeat(9, 1, 1)[:, :3] * torch.ones(9, 3, 5)),
}  # fmt: skip


class _Predicts(nn.Module):
    def __init__(self, criterion: nn.Module, through: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self.linear, self.criterion, self.through = nn.Linear(6, _CLASSES), criterion, through

    def forward(self, x: Tensor, *rest: Tensor) -> Tensor:
        y = self.linear(x)
        found: Tensor = self.criterion(self.through(y) if self.through else y, *rest)
        return found.mean() if found.dim() else found


def _loss(module: nn.Module, batch: Batch) -> Tensor:
    rest = [v for k, v in sorted(batch.items()) if k != "x"]
    found: Tensor = module(batch["x"], *rest)
    return found


def cases() -> Iterator[Case]:
    """One row for each loss and each of its options."""
    for name, (make, draw, through) in _MADE.items():

        def build(make: Any = make, through: Any = through) -> nn.Module:
            return _Predicts(make(), through)

        def batch(g: torch.Generator, draw: Draw = draw) -> Batch:
            rest = {f"y{i}": v for i, v in enumerate(draw(g))}
            return {"x": floats(g, _ROWS, 6)} | rest

        yield Case("loss", name, build, _loss, batch)

    def adaptive() -> nn.Module:
        return _Adaptive()

    yield Case("loss", "AdaptiveLogSoftmaxWithLoss", adaptive, _loss,
               lambda g: {"x": floats(g, _ROWS, 6), "y0": integers(g, 20, _ROWS)})  # fmt: skip


class _Adaptive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 16)
        self.criterion = nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = self.criterion(self.linear(x), y).loss
        return found

"""torch.nn's layers, each with a square loss of its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tallystick_bench.coverage.case import Batch, Case, floats, integers

_1D, _2D, _3D = (3, 4, 9), (3, 4, 8, 7), (2, 4, 5, 6, 7)
_SEQ = (3, 5, 8)
_P = nn.utils.parametrizations

_MADE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Conv1d": (lambda: nn.Conv1d(4, 6, 3, 2, 1), _1D),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, 2, 1), _2D),
    "Conv2d dilated": (lambda: nn.Conv2d(4, 6, 3, dilation=2), _2D),
    "Conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), _2D),
    "Conv2d grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False), _2D),
    "Conv2d same reflect": (
        lambda: nn.Conv2d(4, 6, 3, padding="same", padding_mode="reflect"), _2D),
    "Conv3d": (lambda: nn.Conv3d(4, 5, 3, padding=1), _3D),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(4, 5, 3, 2, 1, 1), _1D),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 5, 3, 2, 1, 1), _2D),
    "ConvTranspose2d grouped": (lambda: nn.ConvTranspose2d(4, 6, 2, 2, groups=2), _2D),
    "ConvTranspose3d": (lambda: nn.ConvTranspose3d(4, 3, 2, 2), _3D),
    "Unfold": (lambda: nn.Unfold(3, padding=1), _2D),
    "Fold": (lambda: nn.Fold((4, 5), 2), (3, 8, 12)),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), _1D),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), _2D),
    "MaxPool3d": (lambda: nn.MaxPool3d(2), _3D),
    "AvgPool1d": (lambda: nn.AvgPool1d(3, 2), _1D),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, 1), _2D),
    "AvgPool2d not counted": (
        lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), _2D),
    "AvgPool3d": (lambda: nn.AvgPool3d(2), _3D),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), _2D),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(3), _1D),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d((3, 2)), _2D),
    "AdaptiveAvgPool1d": (lambda: nn.AdaptiveAvgPool1d(4), _1D),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((3, 2)), _2D),
    "AdaptiveAvgPool3d": (lambda: nn.AdaptiveAvgPool3d(2), _3D),
    "ReflectionPad1d": (lambda: nn.ReflectionPad1d(2), _1D),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d((1, 2, 3, 0)), _2D),
    "ReplicationPad2d": (lambda: nn.ReplicationPad2d(2), _2D),
    "ReplicationPad3d": (lambda: nn.ReplicationPad3d(1), _3D),
    "ZeroPad2d": (lambda: nn.ZeroPad2d(2), _2D),
    "ConstantPad1d": (lambda: nn.ConstantPad1d((1, 2), 0.5), _1D),
    "ConstantPad2d crop": (lambda: nn.ConstantPad2d((-1, 2, 0, 1), 0.5), _2D),
    "CircularPad2d": (lambda: nn.CircularPad2d(2), _2D),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), _1D),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), _2D),
    "BatchNorm3d": (lambda: nn.BatchNorm3d(4), _3D),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), _2D),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(4, affine=True), _1D),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4), _2D),
    "InstanceNorm2d statistics": (
        lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), _2D),
    "LayerNorm": (lambda: nn.LayerNorm(8), _SEQ),
    "LayerNorm two axes": (lambda: nn.LayerNorm((5, 8)), _SEQ),
    "RMSNorm": (lambda: nn.RMSNorm(8), _SEQ),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(3), _2D),
    "CrossMapLRN2d": (lambda: nn.CrossMapLRN2d(3), _2D),
    "RNN": (lambda: nn.RNN(8, 6, 2, batch_first=True), _SEQ),
    "RNN relu bidirectional": (
        lambda: nn.RNN(8, 6, nonlinearity="relu", bidirectional=True), _SEQ),
    "LSTM": (lambda: nn.LSTM(8, 6, 2, batch_first=True), _SEQ),
    "LSTM bidirectional": (lambda: nn.LSTM(8, 6, bidirectional=True), _SEQ),
    "LSTM projected": (lambda: nn.LSTM(8, 6, proj_size=4), _SEQ),
    "GRU": (lambda: nn.GRU(8, 6, 2, batch_first=True), _SEQ),
    "MultiheadAttention": (lambda: _SelfAttention(), _SEQ),
    "TransformerEncoderLayer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), _SEQ),
    "TransformerEncoder": (lambda: _encoder(), _SEQ),
    "Transformer": (lambda: _Transformer(), _SEQ),
    "Linear": (lambda: nn.Linear(8, 5), _SEQ),
    "Bilinear": (lambda: _Bilinear(), _SEQ),
    "Flatten": (lambda: nn.Flatten(), _2D),
    "Unflatten": (lambda: nn.Unflatten(1, (2, 2)), _2D),
    "CosineSimilarity": (lambda: _Twice(nn.CosineSimilarity(-1)), _SEQ),
    "PairwiseDistance": (lambda: _Twice(nn.PairwiseDistance()), _SEQ),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), _2D),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), (3, 4, 8, 6)),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), _2D),
    "Upsample nearest": (lambda: nn.Upsample(scale_factor=2), _2D),
    "Upsample nearest 1d": (lambda: nn.Upsample(size=13), _1D),
    "Upsample bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), _2D),
    "Upsample bilinear corners": (
        lambda: nn.Upsample(size=(5, 11), mode="bilinear", align_corners=True), _2D),
    "Upsample linear": (lambda: nn.Upsample(scale_factor=1.5, mode="linear"), _1D),
    "Upsample trilinear": (lambda: nn.Upsample(scale_factor=2, mode="trilinear"), _3D),
    "Upsample bicubic": (lambda: nn.Upsample(scale_factor=2, mode="bicubic"), _2D),
    "Interpolate area": (lambda: _Interpolate(size=(4, 3), mode="area"), _2D),
    "Interpolate antialias": (
        lambda: _Interpolate(size=(4, 3), mode="bilinear", antialias=True), _2D),
    "grid_sample": (lambda: _GridSample(), (3, 4, 8, 8)),
    "weight_norm": (lambda: _P.weight_norm(nn.Linear(8, 5)), _SEQ),
    "weight_norm conv": (lambda: _P.weight_norm(nn.Conv1d(4, 6, 3), dim=2), _1D),
    "spectral_norm": (lambda: _P.spectral_norm(nn.Linear(8, 5)), _SEQ),
    "orthogonal": (lambda: _P.orthogonal(nn.Linear(8, 5), orthogonal_map="cayley"), _SEQ),
    "SyncBatchNorm alone": (lambda: nn.BatchNorm2d(4, momentum=None), _2D),
}  # fmt: skip
_DRAWN: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "Dropout": (lambda: nn.Dropout(0.3), _SEQ),
    "Dropout1d": (lambda: nn.Dropout1d(0.3), _1D),
    "Dropout2d": (lambda: nn.Dropout2d(0.3), _2D),
    "Dropout3d": (lambda: nn.Dropout3d(0.3), _3D),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.3), _SEQ),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.3), _2D),
}


class _SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        padding = torch.arange(x.shape[1], device=x.device)[None] > torch.tensor([[5], [2], [3]])
        found: Tensor = self.attention(x, x, x, key_padding_mask=padding)[0]
        return found


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        found: Tensor = self.inner(x, x.flip(1), tgt_mask=mask, tgt_is_causal=True)
        return found


class _Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Bilinear(8, 8, 5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x, x.roll(1, 1))
        return found


class _Twice(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.linear = inner, nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x, self.linear(x))
        return found


class _Interpolate(nn.Module):
    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, **self.how)


class _GridSample(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Parameter(torch.tensor([[0.8, 0.3, 0.1], [-0.2, 0.9, 0.05]]))

    def forward(self, x: Tensor) -> Tensor:
        turn = self.turn.expand(x.shape[0], 2, 3)
        grid = nn.functional.affine_grid(turn, list(x.shape), align_corners=False)
        return nn.functional.grid_sample(x, grid, align_corners=False)


class _Scaled(nn.Module):
    """The layer behind a weight of its input's shape, so that its input has a gradient."""

    def __init__(self, inner: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(shape[1:])), inner

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(x * self.scale)
        return found[0] if isinstance(found, tuple) else found


def _loss(module: nn.Module, batch: Batch) -> Tensor:
    y = module(batch["x"])
    slope = torch.arange(y.numel(), device=y.device).reshape(y.shape) / y.numel()
    found: Tensor = (y * (y + slope)).mean()
    return found


def cases() -> Iterator[Case]:
    """Every layer with an input of floats, and those with integers."""
    for made, drawn in ((_MADE, False), (_DRAWN, True)):
        for name, (make, shape) in made.items():

            def build(make: Any = make, shape: Any = shape) -> nn.Module:
                return _Scaled(make(), shape)

            def batch(g: torch.Generator, shape: Any = shape) -> Batch:
                return {"x": floats(g, *shape)}

            yield Case("layer", name, build, _loss, batch, drawn=drawn)

    def words(g: torch.Generator) -> Batch:
        return {"x": integers(g, 11, 4, 6)}

    yield Case("layer", "Embedding", lambda: nn.Embedding(11, 5, padding_idx=2), _loss, words)
    yield Case("layer", "Embedding max_norm", lambda: nn.Embedding(11, 5, max_norm=1.0), _loss,
               words)  # fmt: skip
    for mode in ("mean", "sum", "max"):
        yield Case("layer", f"EmbeddingBag {mode}",
                   lambda mode=mode: nn.EmbeddingBag(11, 5, mode=mode), _loss, words)  # fmt: skip

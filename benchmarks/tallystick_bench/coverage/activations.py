"""Every activation of torch.nn, behind a linear layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from tallystick_bench.coverage.case import Batch, Case, floats

_MADE: dict[str, Callable[[], nn.Module]] = {
    "ELU": nn.ELU,
    "Hardshrink": nn.Hardshrink,
    "Hardsigmoid": nn.Hardsigmoid,
    "Hardtanh": nn.Hardtanh,
    "Hardswish": nn.Hardswish,
    "LeakyReLU": nn.LeakyReLU,
    "LogSigmoid": nn.LogSigmoid,
    "PReLU": lambda: nn.PReLU(8),
    "ReLU": nn.ReLU,
    "ReLU6": nn.ReLU6,
    "RReLU": nn.RReLU,
    "SELU": nn.SELU,
    "CELU": nn.CELU,
    "GELU": nn.GELU,
    "GELU tanh": lambda: nn.GELU("tanh"),
    "Sigmoid": nn.Sigmoid,
    "SiLU": nn.SiLU,
    "Mish": nn.Mish,
    "Softplus": nn.Softplus,
    "Softplus beta": lambda: nn.Softplus(2.0, 3.0),
    "Softshrink": nn.Softshrink,
    "Softsign": nn.Softsign,
    "Tanh": nn.Tanh,
    "Tanhshrink": nn.Tanhshrink,
    "Threshold": lambda: nn.Threshold(0.1, 0.5),
    "GLU": nn.GLU,
    "Softmin": lambda: nn.Softmin(-1),
    "Softmax": lambda: nn.Softmax(-1),
    "Softmax2d": nn.Softmax2d,
    "LogSoftmax": lambda: nn.LogSoftmax(-1),
    "ReLU in place": lambda: nn.ReLU(inplace=True),
}
_DRAWN = frozenset({"RReLU"})


class _Behind(nn.Module):
    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(6, 8), activation

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.activation(self.linear(x))
        return found


def _loss(module: nn.Module, batch: Batch) -> Tensor:
    found: Tensor = (module(batch["x"]) * batch["w"]).sum()
    return found


def cases() -> Iterator[Case]:
    """Softmax2d wants images; GLU halves its last axis."""
    for name, make in _MADE.items():

        def build(make: Any = make) -> nn.Module:
            return _Behind(make())

        shape = (3, 4, 5) if name == "Softmax2d" else (7,)
        width = 4 if name == "GLU" else 8

        def batch(g: Any, shape: Any = shape, width: int = width) -> Batch:
            return {"x": floats(g, *shape, 6), "w": floats(g, *shape, width)}

        yield Case("activation", name, build, _loss, batch, drawn=name in _DRAWN)

"""The kernels of the published form on a torch device, and torch's kernels behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch

from tallystick.contracts.ordered.cpu import kernel
from tallystick.contracts.ordered.torch.table import exact
from tallystick.contracts.replay.stock.rounding import nearest
from tallystick.contracts.replay.stock.stock import Stock, stock_form
from tallystick.devices.kernel import Kernel, Run
from tallystick.devices.torch import Tensor, Tensors, TorchDevice
from tallystick.kernels.views import view
from tallystick.numerics.contracts import MAX_BITS
from tallystick.numerics.registry import OpSpec, all_ops
from tallystick.numerics.types import Attrs

if TYPE_CHECKING:
    from tallystick.contracts.replay.contract import Replay
    from tallystick.devices.device import Device


def stock_of(device: Device) -> Stock:
    """torch's kernels on `device`, one of torch's: whoever keeps or follows a log there computes
    with the same ones."""
    assert isinstance(device, TorchDevice)
    made = device.kept.get("stock")
    if made is None:
        made = device.kept["stock"] = Stock(str(device.torch_device), opaque=True)
    return cast(Stock, made)


def stock_kernels(contract: Replay, device: Device) -> Mapping[str, Kernel]:
    """The kernels of an empty log: x, rounded to the nearest."""
    stock = stock_of(device)
    return {
        name: _kernel(spec, contract, stock)
        for name, spec in all_ops().items()
        if name not in view and (name in stock_form or name in exact)
    }


def _kernel(spec: OpSpec, contract: Replay, stock: Stock) -> Kernel:
    if spec.name in stock_form:
        # All of a form's results are there before one of them is written, so it may share what
        # the ordinary kernel may share. It gets the operands that a form gets on the processor.
        return replace(kernel[spec.name], run=_by_form(spec, contract, stock))
    made = exact[spec.name]
    if spec.is_unlogged or contract.bits == MAX_BITS:
        return replace(made, run=torch.no_grad()(made.run))
    return replace(made, run=_to_grid(made.run, contract.bits))


def _by_form(spec: OpSpec, contract: Replay, stock: Stock) -> Run:
    bits, plus_zero = contract.bits, spec.name in contract.own_operators

    def run(attrs: Attrs, inputs: Tensors, outputs: Sequence[Tensor]) -> None:
        found = stock.compute_there(spec, attrs, inputs, outputs)
        with torch.no_grad():
            for x, out in zip(found, outputs, strict=True):
                if x is not None:
                    out.copy_(nearest(x, bits, plus_zero))

    return run


def _to_grid(ordinary: Run, bits: int) -> Run:
    """An exact kernel whose f32 results are rounded to `bits` (14.9)."""

    def run(attrs: Attrs, inputs: Tensors, outputs: Sequence[Tensor]) -> None:
        with torch.no_grad():
            ordinary(attrs, inputs, outputs)
            for out in outputs:
                if out.dtype == torch.float32:
                    out.copy_(nearest(out.to(torch.float64), bits, False))

    return run

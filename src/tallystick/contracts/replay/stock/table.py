"""The published form on a torch device (NUMERICS 14.9): its kernels and torch's behind them, and R,
log and rev on the kernels' results.

The rounding repeats the core's pass over a stock kernel's binary64 result
(native/src/families/published.cpp) in torch's integer and comparison kernels, which are exact. So
results stay on their device, and only packed entries leave it. Both give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import torch

from tallystick.commit.log import ENTRIES_PER_BYTE
from tallystick.contracts.ordered.cpu import kernel
from tallystick.contracts.ordered.torch import NAN32, exact
from tallystick.contracts.replay.entries import FIVE_NO_CHANGE, LARGEST_BYTE
from tallystick.contracts.replay.stock.stock import Stock, stock_form
from tallystick.devices.device import Kernel, Run
from tallystick.devices.torch import Tensor, Tensors, TorchDevice
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import MAX_BITS
from tallystick.numerics.registry import OpSpec, all_ops
from tallystick.numerics.types import Attrs

if TYPE_CHECKING:
    from tallystick.contracts.replay.contract import Replay
    from tallystick.devices.device import Device

_MAGNITUDE = (1 << 63) - 1
_INFINITY = 0x7FF << 52
_OVERFLOW = 0x47F << 52  # 2^128
_LOWEST_TEN, _HIGHEST_TEN = -324, 308


def _rounded(x: Tensor, bits: int) -> Tensor:
    """R(x) as binary64; a zero keeps its sign, and a NaN stays a NaN."""
    if bits == 32:
        return x.to(torch.float32).to(torch.float64)
    drop = 61 - bits
    magnitude = x.view(torch.int64) & _MAGNITUDE
    low = (1 << drop) - 1
    v = (magnitude + (low >> 1) + ((magnitude >> drop) & 1)) & ~low
    v = torch.where(v >= _OVERFLOW, _INFINITY, v)
    # Below 2^-126 the spacing stays that of subnormals: adding 2^52 spacings rounds to a multiple.
    absolute = magnitude.view(torch.float64)
    big = 2.0 ** (-65 - bits)
    v = torch.where(absolute < 2.0**-126, ((absolute + big) - big).view(torch.int64), v)
    v = torch.where(magnitude > _INFINITY, magnitude, v)
    return torch.copysign(v.view(torch.float64), x)


@lru_cache(maxsize=8)
def _tens(device: torch.device) -> Tensor:
    """f64: RN64(10^k) from the lowest k on; Python reads a decimal to the nearest number."""
    powers = [float(f"1e{k}") for k in range(_LOWEST_TEN, _HIGHEST_TEN + 1)]
    return torch.tensor(powers, dtype=torch.float64, device=device)


def _is_logged(x: Tensor, r: Tensor, threshold: int, decimal: bool) -> Tensor:
    """|x - r| > exp(x)·τ."""
    tau, a, d = threshold * 2.0**-40, x.abs(), (x - r).abs()
    if decimal:
        tens = _tens(x.device)
        place = torch.searchsorted(tens, a.nan_to_num(0.0), right=True) - 1
        power = tens[place.clamp(0, len(tens) - 1)]
        return (a > 0) & (a < torch.inf) & (d > power * tau)
    # Where exp(x)·τ could be subnormal both sides are scaled: the comparison is exact.
    scale = torch.where(a < 2.0**-900, 2.0**200, torch.ones_like(a))
    exponent = ((a * scale).view(torch.int64) & _INFINITY).view(torch.float64)
    return d * scale > exponent * tau


def _finished(r: Tensor, plus_zero: bool) -> Tensor:
    """f32: the value of an output, zeros and NaN as the contract has them."""
    value = r.to(torch.float32)
    if plus_zero:
        value = value + 0.0
    return torch.where(value.isnan(), NAN32, value.view(torch.int32)).view(torch.float32)


@lru_cache(maxsize=8)
def _weights(device: torch.device) -> Tensor:
    return torch.tensor([3**k for k in range(ENTRIES_PER_BYTE)], device=device, dtype=torch.uint8)


def pack(entries: Tensor) -> Tensor:
    """u8: flat entries 0, 1, 2, five to a byte; the last byte is filled with 1 (COMMITMENTS
    10.3)."""
    spare = -entries.numel() % ENTRIES_PER_BYTE
    filled = torch.nn.functional.pad(entries, (0, spare), value=1).reshape(-1, ENTRIES_PER_BYTE)
    return (filled * _weights(entries.device)).sum(dim=1, dtype=torch.uint8)


def unpack(packed: Tensor, count: int) -> Tensor:
    """u8: `count` entries; a byte above 242 counts as five entries 1."""
    bytes_ = torch.where(packed > LARGEST_BYTE, FIVE_NO_CHANGE, packed).to(torch.uint8)
    entries = bytes_[:, None] // _weights(packed.device) % 3
    return entries.reshape(-1)[:count]


def nearest(x: Tensor, bits: int, plus_zero: bool) -> Tensor:
    """R(x), f32 of x's shape, for f64 x: the values of a log without entries."""
    return _finished(x if bits == 32 else _rounded(x, bits), plus_zero)


def log(
    x: Tensor, threshold: int, decimal: bool, bits: int, plus_zero: bool
) -> tuple[Tensor, Tensor]:
    """For f64 x: a trainer's values, f32 of x's shape, and its packed entries."""
    r = _rounded(x, bits)
    side = (x < r).to(torch.int8) - (x > r).to(torch.int8)
    entries = 1 + torch.where(_is_logged(x, r, threshold, decimal), side, 0)
    return _finished(r, plus_zero), pack(entries.reshape(-1).to(torch.uint8))


def follow(x: Tensor, packed: Tensor, bits: int, plus_zero: bool) -> tuple[Tensor, int]:
    """The values, f32 of x's shape, under given entries; the number of elements that these have
    changed."""
    r = _rounded(x, bits)
    entries = unpack(packed, x.numel()).reshape(x.shape)
    down, up = (x < r) & (entries == 0), (x > r) & (entries == 2)
    encoded = r.to(torch.float32).view(torch.int32)
    # r has the sign of x: a step towards zero is one less in the encoding, away from zero one more.
    step = (up.to(torch.int32) - down.to(torch.int32)) << (32 - bits)
    value = (encoded + torch.where(encoded < 0, -step, step)).view(torch.float32)
    return _finished(value.to(torch.float64), plus_zero), int((down | up).sum())


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

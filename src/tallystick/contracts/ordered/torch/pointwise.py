"""Exact torch kernels of every element by itself: the pointwise operators, from their forms
(NUMERICS 6.11, 10, 11.1), and dropout's mask (8.4).

A form on integers or bools rounds nothing, nor does one that only chooses, compares or changes the
signs of binary32 numbers. The primitives of such forms are torch's integer operations, selections,
comparisons and conversions (see `table.py`). So are those of Philox4x32-10 (8.1, 8.3), on any
device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tallystick.contracts.ordered.torch import bits, exact, keys, of_keys, write
from tallystick.devices.device import operand
from tallystick.devices.torch import TORCH_DTYPES, Tensor, Tensors, type_of
from tallystick.errors import RefusedOperandsError
from tallystick.kernels.loops import names_of, pointwise_operators, storage_shared
from tallystick.numerics.operators.common import constant, integer, number
from tallystick.numerics.operators.random import WORD
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.numerics.values.graph import Expr, interpreted

_SIGN, _MAGNITUDE = -(1 << 31), (1 << 31) - 1


def _extremum(integers: Callable[..., Tensor], least: bool) -> Callable[[Tensor, Tensor], Tensor]:
    """max or min of NUMERICS 1.11."""

    def of(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype != torch.float32:
            return integers(a, b)
        return of_keys(torch.maximum(keys(a, least), keys(b, least)), least)

    return of


def _select(where: Tensor, a: Tensor, b: Tensor) -> Tensor:
    chosen = torch.where(where, bits(a), bits(b))
    return chosen.view(torch.float32) if a.dtype == torch.float32 else chosen


def _floor_divide(a: Tensor, b: Tensor) -> Tensor:
    # A processor stops at -2^63 / -1, and negation wraps.
    turned = b == -1
    quotient = torch.div(a, torch.where(turned, 1, b), rounding_mode="floor")
    return torch.where(turned, -a, quotient)


def _left_shift(a: Tensor, b: Tensor) -> Tensor:
    inside = (b >= 0) & (b <= 63)
    return torch.where(inside, a, 0) << torch.where(inside, b, 0)


def _right_shift(a: Tensor, b: Tensor) -> Tensor:
    return a >> torch.where((b >= 0) & (b <= 63), b, 63)


PRIMITIVES: dict[str, Callable[..., Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul,
    "neg": lambda x: (bits(x) ^ _SIGN).view(torch.float32),
    "abs": lambda x: (bits(x) & _MAGNITUDE).view(torch.float32),
    "max": _extremum(torch.maximum, False), "min": _extremum(torch.minimum, True),
    "eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "not": torch.bitwise_not, "floor_divide": _floor_divide,
    "left_shift": _left_shift, "right_shift": _right_shift, "select": _select,
}  # fmt: skip


def interpreter_of(
    op: str, attrs: Attrs, operands: dict[str, Tensor]
) -> Callable[[Expr, tuple[Tensor, ...]], Tensor]:
    device = next(iter(operands.values())).device

    def of(value: Expr, parts: tuple[Tensor, ...]) -> Tensor:
        if value.kind == "operand":
            return operands[value.name]
        if value.kind in ("attribute", "constant"):
            held: Any = value.number
            if value.kind == "attribute":
                held = constant(op, value.name, number(attrs, value.name), value.dtype).item()
            return torch.full((), held, dtype=TORCH_DTYPES[value.dtype], device=device)
        if value.kind == "convert":
            x = parts[0]
            return torch.ne(x, 0) if value.dtype == "bool" else x.to(TORCH_DTYPES[value.dtype])
        return PRIMITIVES[value.kind](*parts)

    return of


def _attach(spec: OpSpec) -> None:
    name, names = spec.name, names_of(spec)

    @exact(name, inplace=storage_shared(spec))
    def run(attrs: Attrs, inputs: Tensors, outputs: list[Tensor]) -> None:
        operands = {of: operand(inputs, k) for k, of in enumerate(names)}
        form = spec.form(attrs, [type_of(x).dtype for x in operands.values()])
        assert form is not None  # the declaration refused the call
        meaning, out = interpreter_of(name, attrs, operands), outputs[0]
        refused = [] if form.refused is None or not out.numel() else [form.refused]
        if any(bool(bad.any()) for bad in interpreted(refused, meaning)):
            raise RefusedOperandsError(name, f"{form.why}.")
        (made,) = interpreted(form.resolved(attrs, frozenset((*attrs, *names))), meaning)
        write(made.expand(out.shape), out)


def _is_exact_somewhere(spec: OpSpec) -> bool:
    """True if a form rounds nothing that the interpreter above would have to round."""
    return any(not form.rounds for form in spec.forms)


for _spec in pointwise_operators():
    if _is_exact_somewhere(_spec):
        _attach(_spec)


# --- random words (8.1, 8.3) ----------------------------------------------------------------------
_LOW = WORD - 1
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10


def check_key(op: str, key: Tensor) -> None:
    """A seed and a step that 8.3 has. Raises RefusedOperandsError; one flag is read."""
    if bool((key < 0).any() | (key[1] >= WORD)):
        raise RefusedOperandsError(
            op, "the seed of its key must not be negative, the step must be below 2^32."
        )


def check_places(op: str, place: Tensor) -> None:
    """Places that 8.8 has. Raises RefusedOperandsError; one flag is read."""
    if bool(((place < 0) | (place >= WORD)).any()):
        raise RefusedOperandsError(op, "a place is outside [0, 2^32).")


def _product(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """The high and the low word of x·factor; i64 products wrap, which leaves both intact."""
    wide = x * factor
    return (wide >> 32) & _LOW, wide & _LOW


def words(key: Tensor, draw: int, count: int) -> Tensor:
    """i64[count]: the words of elements 0 .. count - 1 of a draw (8.1). `key`, i64[2], is read
    where it lies."""
    block = torch.arange(-(-count // 4), dtype=torch.int64, device=key.device)
    return of_blocks(key, draw, block).reshape(-1)[:count]


def of_blocks(key: Tensor, draw: int, block: Tensor) -> Tensor:
    """i64[n, 4]: the words of the blocks numbered by `block`, i64[n]."""
    seed, step = key[0], key[1]
    c0, c1 = block & _LOW, block >> 32
    c2, c3 = torch.full_like(block, draw), step.expand_as(block)
    k0, k1 = seed & _LOW, seed >> 32
    for _ in range(_ROUNDS):
        high0, low0 = _product(c0, _MULTIPLIERS[0])
        high1, low1 = _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return torch.stack((c0, c1, c2, c3), 1)


# --- dropout's mask (8.4) -------------------------------------------------------------------------
@exact("tallystick.dropout_mask", named=True)
def _dropout(op: str, attrs: Attrs, inputs: Tensors, outputs: list[Tensor]) -> None:
    key, out = operand(inputs, 0), outputs[0]
    check_key(op, key)
    # Scaling by a power of two is exact, and round() is to even (8.4).
    threshold = round(number(attrs, "p") * WORD)
    drawn = words(key, integer(attrs, "draw"), out.numel())
    torch.ge(drawn, threshold, out=out.view(-1))

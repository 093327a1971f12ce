"""`torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu`, time step by time step.

torch has these operators in several forms: one fused call, one product over all time steps, or one
product for each. They sum the gradients of the weights in different orders. Here is the last form,
for programs and for `reproducible` alike (PROGRAM 5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.errors import UnsupportedOperatorError

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State, Sequence[Tensor], bool], State]
Dropout = Callable[[Tensor], Tensor]


def refuse_packing(*args: Any, **kwargs: Any) -> Any:
    """In the place of torch's packing of sequences."""
    raise UnsupportedOperatorError(
        "Packed sequences (torch.nn.utils.rnn) have a shape that depends on values.",
        "Run the padded batch, and mask what lies beyond each length.",
    )


def _of_input(x: Tensor, w: Sequence[Tensor], bias: bool) -> Tensor:
    return F.linear(x, w[0], w[2] if bias else None)


def _of_state(h: Tensor, w: Sequence[Tensor], bias: bool) -> Tensor:
    return F.linear(h, w[1], w[3] if bias else None)


def _lstm(x: Tensor, state: State, w: Sequence[Tensor], bias: bool) -> State:
    h, c = state
    i, f, g, o = (_of_state(h, w, bias) + _of_input(x, w, bias)).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    c = f * c + i * g
    h = o * c.tanh()
    if len(w) > (4 if bias else 2):
        h = F.linear(h, w[-1])
    return h, c


def _gru(x: Tensor, state: State, w: Sequence[Tensor], bias: bool) -> State:
    (h,) = state
    ir, iz, inew = _of_input(x, w, bias).chunk(3, 1)
    hr, hz, hnew = _of_state(h, w, bias).chunk(3, 1)
    reset, keep = (hr + ir).sigmoid(), (hz + iz).sigmoid()
    new = (inew + hnew * reset).tanh()
    return ((h - new) * keep + new,)


def _simple(activation: Callable[[Tensor], Tensor]) -> Cell:
    def cell(x: Tensor, state: State, w: Sequence[Tensor], bias: bool) -> State:
        return (activation(_of_state(state[0], w, bias) + _of_input(x, w, bias)),)

    return cell


CELLS: dict[Any, Cell] = {
    torch.lstm: _lstm,
    torch.gru: _gru,
    torch.rnn_tanh: _simple(torch.tanh),
    torch.rnn_relu: _simple(torch.relu),
}


def _direction(
    cell: Cell, steps: Sequence[Tensor], state: State, w: Sequence[Tensor], bias: bool
) -> tuple[list[Tensor], State]:
    outputs = []
    for x in steps:
        state = cell(x, state, w, bias)
        outputs.append(state[0])
    return outputs, state


def recurrent(cell: Cell, dropout: Callable[[Tensor, float, bool], Tensor]) -> Callable[..., Any]:
    """A function with the arguments of torch's operator, for a padded batch."""

    def run(
        input: Tensor,
        hx: Any,
        weights: Sequence[Tensor],
        bias: bool,
        layers: int,
        p: float,
        train: bool,
        both: bool,
        batch_first: bool = False,
    ) -> Any:
        if isinstance(hx, Tensor) and hx.dim() == 1:
            refuse_packing()
        ways = 2 if both else 1
        each = len(weights) // (layers * ways)
        y = input.transpose(0, 1) if batch_first else input
        starts = [h.unbind(0) for h in ((hx,) if isinstance(hx, Tensor) else hx)]
        ends: list[State] = []
        for layer in range(layers):
            if layer:
                y = dropout(y, p, train)
            steps = y.unbind(0)
            made = []
            for way in range(ways):
                at = layer * ways + way
                w = weights[at * each : (at + 1) * each]
                order = steps[::-1] if way else steps
                outputs, end = _direction(cell, order, tuple(s[at] for s in starts), w, bias)
                made.append(torch.stack(outputs[::-1] if way else outputs))
                ends.append(end)
            y = torch.cat(made, -1) if both else made[0]
        y = y.transpose(0, 1) if batch_first else y
        return (y, *(torch.stack(e) for e in zip(*ends, strict=True)))

    return run

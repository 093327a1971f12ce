"""RNN, GRU and LSTM, one step of time after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, rule

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu,
}  # fmt: skip


class _Direction:
    """The weights of one direction, and its step."""

    def __init__(self, c: OnnxCall, name: str, number: int, functions: list[Any]) -> None:
        self.name, self.f = name, functions
        self.w, self.r = c.tensor(1)[number], c.tensor(2)[number]
        bias = c.optional(3)
        gates, width = _GATES[name], self.r.shape[1]
        self.before_reset = c.attr("linear_before_reset", 0)
        if bias is None:
            zero = torch.zeros(2 * gates * width, dtype=self.w.dtype, device=self.w.device)
            bias = zero.unsqueeze(0).expand(number + 1, -1)
        self.wb, self.rb = bias[number].chunk(2)
        peephole = c.optional(7) if name == "LSTM" else None
        self.peephole = None if peephole is None else peephole[number].chunk(3)

    def step(self, x: Tensor, h: Tensor, cell: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The next hidden state, and the LSTM's cell."""
        f = self.f
        if self.name == "RNN":
            return f[0](x @ self.w.t() + h @ self.r.t() + self.wb + self.rb), None
        left, right = x @ self.w.t() + self.wb, h @ self.r.t() + self.rb
        if self.name == "GRU":
            (xz, xr, xh), (hz, hr, hh) = left.chunk(3, 1), right.chunk(3, 1)
            z, r = f[0](xz + hz), f[0](xr + hr)
            if not self.before_reset:
                width = h.shape[1]
                hh = (r * h) @ self.r[2 * width :].t() + self.rb[2 * width :]
                fresh = f[1](xh + hh)
            else:
                fresh = f[1](xh + r * hh)
            return (1.0 - z) * fresh + z * h, None
        assert cell is not None
        i, o, forget, c = (left + right).chunk(4, 1)
        if self.peephole is not None:
            i, forget = i + self.peephole[0] * cell, forget + self.peephole[2] * cell
        cell = f[0](forget) * cell + f[0](i) * f[1](c)
        o = o if self.peephole is None else o + self.peephole[1] * cell
        return f[0](o) * f[2](cell), cell


def _functions(c: OnnxCall, name: str, directions: int) -> list[list[Any]]:
    names = c.attr("activations") or _DEFAULTS[name] * directions
    each = len(_DEFAULTS[name])
    for given in names:
        if given.lower() not in _FUNCTIONS:
            raise c.refuse(f"its activation is {given!r}.")
    found: list[Any] = [_FUNCTIONS[given.lower()] for given in names]
    return [found[i * each : (i + 1) * each] for i in range(directions)]


@rule("RNN 7-22", "GRU 7-22", "LSTM 7-22", named=True)
def _recurrent(name: str, c: OnnxCall) -> tuple[Tensor, ...]:
    """Sequences of one length; sequence_lens, clip and input_forget are refused."""
    x, way, batch_first = c.tensor(0), c.attr("direction"), c.attr("layout", 0)
    _ = c.attr("hidden_size")
    if c.has(4):
        lengths = c.known(4)
        if lengths is None or (lengths != x.shape[1 if batch_first else 0]).any():
            raise c.refuse("it has sequence_lens.")
    if c.attr("input_forget", 0):
        raise c.refuse("it couples its input and forget gates.")
    x = x.transpose(0, 1) if batch_first else x
    length, batch = x.shape[:2]
    count = 2 if way == "bidirectional" else 1
    functions = _functions(c, name, count)
    hidden, cells, outputs = [], [], []
    for number in range(count):
        one = _Direction(c, name, number, functions[number])
        shape = (batch, one.r.shape[1])
        h, cell = (_first(c, place, number, shape, x, batch_first) for place in (5, 6))
        made: list[Tensor] = []
        backwards = way == "reverse" or number == 1
        for i in reversed(range(length)) if backwards else range(length):
            h, cell_or_none = one.step(x[i], h, cell if name == "LSTM" else None)
            cell = cell if cell_or_none is None else cell_or_none
            made.append(h)
        outputs.append(torch.stack(made[::-1] if backwards else made))
        hidden.append(h)
        cells.append(cell)
    y = torch.stack(outputs, dim=1)
    found = [y, torch.stack(hidden)]
    if name == "LSTM":
        found.append(torch.stack(cells))
    if batch_first:
        found = [y.permute(2, 0, 1, 3), *(state.transpose(0, 1) for state in found[1:])]
    return tuple(found)


def _first(
    c: OnnxCall, place: int, number: int, shape: tuple[int, int], x: Tensor, batch_first: int
) -> Tensor:
    state = c.optional(place) if place < 6 or len(c) > 6 else None
    if state is None:
        return torch.zeros(shape, dtype=x.dtype, device=x.device)
    return state[:, number] if batch_first else state[number]

"""Muon, node by node (PROGRAM 8.9): its matrix products are the contract's, in float32."""

from __future__ import annotations

import math

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Value
from tallystick.program.optimizers import Muon
from tallystick.program.update_base import Family, Given, SlotRule, moments


def _slots(o: Muon, name: str, type_: TensorType) -> dict[str, SlotRule]:
    if len(type_.shape) != 2:
        raise UsageError(
            f"Muon needs two axes, but the parameter {name} has {len(type_.shape)}.",
            "Give it another optimizer with tallystick.ParameterGroups, such as AdamW.",
        )
    return moments(type_, name, "buf")


def _orthogonal(o: Muon, g: Value, given: Given) -> Value:
    """Newton and Schulz's iteration; of a matrix with more rows than columns on its transpose."""
    b = given.b
    rows, columns = b.type_of(g).shape
    a, linear, cubic = o.ns_coefficients

    def turned(x: Value) -> Value:
        return b.one("aten.permute", [x], dims=(1, 0))

    x = given.div(g, given.at_least(given.norm(g), o.eps))
    x = turned(x) if rows > columns else x
    for _ in range(o.ns_steps):
        gram = b.one("aten.mm", [x, turned(x)])
        mixed = b.one("aten.addmm", [gram, gram, gram], beta=float(linear), alpha=float(cubic))
        x = b.one("aten.addmm", [x, mixed, x], beta=float(a), alpha=1.0)
    return turned(x) if rows > columns else x


def _scale(o: Muon, shape: tuple[int, ...]) -> float:
    rows, columns = shape
    if o.adjust_lr == "original":
        return math.sqrt(max(1.0, rows / columns)) if columns else 1.0
    return 0.2 * math.sqrt(max(rows, columns))


def _emit(o: Muon, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    p, buffer = given.parameter(name), given.slot("buf", name)
    g = given.clipped(gradient)
    buffer = given.add(buffer, given.sub(g, buffer), 1.0 - o.momentum)
    mixed = given.add(g, given.sub(buffer, g), o.momentum) if o.nesterov else buffer
    step = given.times(_orthogonal(o, mixed, given), _scale(o, given.shape(name)))
    decay = o.decay_of(name, given.shape(name))
    if decay:
        step = given.add(step, p, decay)
    (new,) = given.stepped(p, step, given.scalars["lr"])
    return {f"opt.buf.{name}": buffer, f"param.{name}": new}


FAMILY = Family(_slots, _emit)

"""LAMB, node by node (PROGRAM 8.6)."""

from __future__ import annotations

from tallystick.numerics.types import TensorType
from tallystick.program.ir import Value
from tallystick.program.optimizers import LAMB
from tallystick.program.update_base import Family, Given, SlotRule, moments


def _slots(o: LAMB, name: str, type_: TensorType) -> dict[str, SlotRule]:
    return moments(type_, name, "m", "v")


def _emit(o: LAMB, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    b, p, shape = given.b, given.parameter(name), given.shape(name)
    # Adam's step from zeros with the rate -1 is its direction, bias corrected.
    powers = given.powers or [given.constant(0.0, "f64")] * 2
    operands = [given.constant(0.0, shape=shape), gradient]
    operands += [given.slot("m", name), given.slot("v", name), given.constant(-1.0, "f64")]
    direction, m, v = b.emit(
        "tallystick.adam_step",
        [*operands, *powers, given.coefficient],
        beta1=float(o.betas[0]),
        beta2=float(o.betas[1]),
        eps=float(o.eps),
        weight_decay=0.0,
    )
    decay = o.decay_of(name, shape)
    if decay:
        direction = given.add(direction, p, decay)
    trust = _trust(o, p, direction, given) if decay or o.always_adapt else None
    (new,) = given.stepped(p, direction, given.scalars["lr"], trust)
    return {f"opt.m.{name}": m, f"opt.v.{name}": v, f"param.{name}": new}


def _trust(o: LAMB, p: Value, direction: Value, given: Given) -> Value:
    """The parameter's norm over the direction's, 1 where one of them is 0."""
    b, one, norms = given.b, given.constant(1.0), (given.norm(p), given.norm(direction))
    trust = given.div(*norms)
    for norm in norms:
        none = b.one("aten.eq.Scalar", [norm], other=0.0)
        trust = b.one("aten.where", [none, one, trust])
    return trust if o.max_trust is None else b.one("aten.clamp", [trust], max=float(o.max_trust))


FAMILY = Family(_slots, _emit, powers=lambda o: o.bias_correction)

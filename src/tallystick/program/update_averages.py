"""RMSprop, Adagrad and Lion, node by node (PROGRAM 8.3 to 8.5)."""

from __future__ import annotations

from tallystick.numerics.types import TensorType
from tallystick.program.ir import Value
from tallystick.program.optimizers import Adagrad, Lion, RMSprop
from tallystick.program.tables import Scalar, Slowing
from tallystick.program.update_base import Family, Given, SlotRule, moments, rate_of


def _decayed(o: RMSprop | Adagrad, name: str, gradient: Value, given: Given) -> Value:
    """The clipped gradient, and decay as part of it."""
    gradient = given.clipped(gradient)
    decay = o.decay_of(name, given.shape(name))
    return given.add(gradient, given.parameter(name), decay) if decay else gradient


# -- RMSprop (8.3) ---------------------------------------------------------------------------------
def _rmsprop_slots(o: RMSprop, name: str, type_: TensorType) -> dict[str, SlotRule]:
    kinds = ["v"] + ["avg"] * o.centered + ["buf"] * (o.momentum != 0)
    return moments(type_, name, *kinds)


def _rmsprop(o: RMSprop, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    g = _decayed(o, name, gradient, given)
    square = given.mul(given.times(g, 1.0 - o.alpha), g)
    v = given.add(square, given.slot("v", name), o.alpha)
    changed, spread = {f"opt.v.{name}": v}, v
    if o.centered:
        average = given.slot("avg", name)
        average = given.add(average, given.sub(g, average), 1.0 - o.alpha)
        changed[f"opt.avg.{name}"] = average
        # A rounding may leave less than 0 of what is none: torch has NaN then.
        spread = given.at_least(given.sub(v, given.mul(average, average)), 0.0)
    step = given.div(g, given.plus(given.root(spread), o.eps))
    buffer = given.slot("buf", name) if o.momentum != 0 else None
    parameter, lr = given.parameter(name), given.scalars["lr"]
    new = given.stepped(parameter, step, lr, buffer=buffer, momentum=o.momentum)
    return changed | dict(zip((f"param.{name}", f"opt.buf.{name}"), new, strict=False))


# -- Adagrad (8.4) ---------------------------------------------------------------------------------
def _adagrad_slots(o: Adagrad, name: str, type_: TensorType) -> dict[str, SlotRule]:
    return moments(type_, name, "sum", initial=float(o.initial_accumulator_value))


def _adagrad_scalars(o: Adagrad) -> dict[str, Scalar]:
    rate = rate_of(o.lr)
    return {"lr": Slowing(rate, float(o.lr_decay)) if o.lr_decay else rate}


def _adagrad(o: Adagrad, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    g = _decayed(o, name, gradient, given)
    total = given.add(given.slot("sum", name), given.mul(g, g))
    step = given.div(g, given.plus(given.root(total), o.eps))
    (new,) = given.stepped(given.parameter(name), step, given.scalars["lr"])
    return {f"opt.sum.{name}": total, f"param.{name}": new}


# -- Lion (8.5) ------------------------------------------------------------------------------------
def _lion_slots(o: Lion, name: str, type_: TensorType) -> dict[str, SlotRule]:
    return moments(type_, name, "m")


def _lion(o: Lion, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    b, p, m = given.b, given.parameter(name), given.slot("m", name)
    g = given.clipped(gradient)
    mixed = given.add(given.times(g, 1.0 - o.betas[0]), m, o.betas[0])
    # 2^-149·2^254 is above 1, so every number but 0 becomes its sign, and NaN stays NaN.
    scaled = given.times(given.times(mixed, 2.0**127), 2.0**127)
    step = b.one("aten.clamp", [scaled], min=-1.0, max=1.0)
    decay = o.decay_of(name, given.shape(name))
    if decay:
        step = given.add(step, p, decay)
    (new,) = given.stepped(p, step, given.scalars["lr"])
    m = given.add(given.times(g, 1.0 - o.betas[1]), m, o.betas[1])
    return {f"opt.m.{name}": m, f"param.{name}": new}


RMSPROP = Family(_rmsprop_slots, _rmsprop)
ADAGRAD = Family(_adagrad_slots, _adagrad, _adagrad_scalars)
LION = Family(_lion_slots, _lion)

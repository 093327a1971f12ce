"""Adafactor as torch and as transformers have it, node by node (PROGRAM 8.7, 8.8).

The second moment of a parameter of two axes or more is kept as means of rows and of columns. Each
moves by a part of step^decay, a table of the job: no power is computed in the program.
"""

from __future__ import annotations

from tallystick.numerics.types import TensorType
from tallystick.program.ir import Value
from tallystick.program.optimizers import Adafactor, TransformersAdafactor
from tallystick.program.tables import Power, Relative, Scalar
from tallystick.program.update_base import Family, Given, SlotRule, moments, rate_of

EPS = 2.0**-23


def _factored(type_: TensorType, name: str) -> dict[str, SlotRule]:
    shape = type_.shape
    if len(shape) < 2:
        return moments(type_, name, "v")
    return {
        f"opt.col.{name}": SlotRule(TensorType("f32", (*shape[:-2], 1, shape[-1])), 0.0),
        f"opt.row.{name}": SlotRule(TensorType("f32", (*shape[:-1], 1)), 0.0),
    }


def _averages(name: str, squares: Value, given: Given) -> dict[str, Value]:
    """The new means of squares: of rows and columns, or of each element."""
    part, rank = given.scalars["part"], len(given.shape(name))
    if rank < 2:
        return {f"opt.v.{name}": given.towards(given.slot("v", name), squares, part)}
    return {
        f"opt.{kind}.{name}": given.towards(given.slot(kind, name), given.mean(squares, axis), part)
        for kind, axis in (("col", rank - 2), ("row", rank - 1))
    }


def _clipping(update: Value, most: float, given: Given) -> Value:
    """max(1, rms(update)/most), f32[]."""
    return given.at_least(given.over(given.rms(update), most), 1.0)


# -- torch's (8.7) ---------------------------------------------------------------------------------
def _scalars(o: Adafactor) -> dict[str, Scalar]:
    rate = rate_of(o.lr)
    found: dict[str, Scalar] = {"part": Power(rate, o.beta2_decay), "rate": Relative(rate)}
    return {**found, "lr": rate} if o.weight_decay else found


def _emit(o: Adafactor, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    p, rank = given.parameter(name), len(given.shape(name))
    eps = EPS if o.eps[0] is None else o.eps[0]
    g = given.clipped(gradient)
    changed = _averages(name, given.mul(g, g), given)
    if rank < 2:
        estimate = changed[f"opt.v.{name}"]
    else:
        row, col = changed[f"opt.row.{name}"], changed[f"opt.col.{name}"]
        mean = given.at_least(given.mean(row, rank - 2), eps)
        estimate = given.div(given.mul(row, col), mean)
    update = given.mul(given.inverse_root(given.at_least(estimate, eps * eps)), g)
    scale = given.at_least(given.rms(p), o.eps[1])
    factor = given.div(scale, _clipping(update, o.d, given))
    decay = o.decay_of(name, given.shape(name))
    if decay:
        (p,) = given.stepped(p, given.times(p, decay), given.scalars["lr"])
    (new,) = given.stepped(p, update, given.scalars["rate"], factor)
    return {**changed, f"param.{name}": new}


# -- transformers' (8.8) ---------------------------------------------------------------------------
def _own_slots(o: TransformersAdafactor, name: str, type_: TensorType) -> dict[str, SlotRule]:
    return _factored(type_, name) | (moments(type_, name, "m") if o.beta1 is not None else {})


def _own_scalars(o: TransformersAdafactor) -> dict[str, Scalar]:
    rate: Scalar
    if o.lr is None:
        rate = Relative(1e-6 if o.warmup_init else 1e-2, o.warmup_init)
    else:
        rate = rate_of(o.lr)
    return {"lr": rate, "part": Power(0.0, o.decay_rate)}


def _own_emit(
    o: TransformersAdafactor, name: str, gradient: Value, given: Given
) -> dict[str, Value]:
    p, rank, lr = given.parameter(name), len(given.shape(name)), given.scalars["lr"]
    g = given.clipped(gradient)
    changed = _averages(name, given.plus(given.mul(g, g), o.eps[0]), given)
    if rank < 2:
        scaling = given.inverse_root(changed[f"opt.v.{name}"])
    else:
        row, col = changed[f"opt.row.{name}"], changed[f"opt.col.{name}"]
        rows = given.inverse_root(given.div(row, given.mean(row, rank - 2)))
        scaling = given.mul(rows, given.inverse_root(col))
    update = given.mul(scaling, g)
    clipping = _clipping(update, o.clip_threshold, given)
    scale = given.at_least(given.rms(p), o.eps[1]) if o.scale_parameter else given.constant(1.0)
    decay = o.decay_of(name, given.shape(name))
    if o.beta1 is None:
        factor = given.div(scale, clipping)
        if decay:
            (p,) = given.stepped(p, given.times(p, decay), lr, scale if o.scale_parameter else None)
        (new,) = given.stepped(p, update, lr, factor)
        return {**changed, f"param.{name}": new}
    step = given.mul(update, given.mul(given.div(scale, clipping), given.single(lr)))
    m = given.add(given.times(step, 1.0 - o.beta1), given.slot("m", name), o.beta1)
    if decay:
        (p,) = given.stepped(p, given.times(p, decay), lr, scale if o.scale_parameter else None)
    return {**changed, f"opt.m.{name}": m, f"param.{name}": given.sub(p, m)}


TORCHS = Family(lambda o, name, type_: _factored(type_, name), _emit, _scalars)
TRANSFORMERS = Family(_own_slots, _own_emit, _own_scalars)

"""The rules of the optimizers that are several nodes, node by node (PROGRAM 8.3 to 8.9).

RMSprop, Adagrad and Lion (8.3 to 8.5), LAMB (8.6), Adafactor as torch and as transformers have it
(8.7, 8.8), Muon (8.9), whose matrix products are the contract's, in float32.

Adafactor keeps the second moment of a parameter of two axes or more as means of rows and of
columns. Each moves by a part of step^decay, a table of the job: no power is computed in the
program.
"""

from __future__ import annotations

import math

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Value
from tallystick.program.optimizers import (
    LAMB,
    Adafactor,
    Adagrad,
    Lion,
    Muon,
    RMSprop,
    TransformersAdafactor,
)
from tallystick.program.tables import Power, Relative, Scalar, Slowing
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


def _lamb_slots(o: LAMB, name: str, type_: TensorType) -> dict[str, SlotRule]:
    return moments(type_, name, "m", "v")


def _lamb(o: LAMB, name: str, gradient: Value, given: Given) -> dict[str, Value]:
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


LAMBS = Family(_lamb_slots, _lamb, powers=lambda o: o.bias_correction)


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
def _adafactor_scalars(o: Adafactor) -> dict[str, Scalar]:
    rate = rate_of(o.lr)
    found: dict[str, Scalar] = {"part": Power(rate, o.beta2_decay), "rate": Relative(rate)}
    return {**found, "lr": rate} if o.weight_decay else found


def _adafactor(o: Adafactor, name: str, gradient: Value, given: Given) -> dict[str, Value]:
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


TORCHS = Family(lambda o, name, type_: _factored(type_, name), _adafactor, _adafactor_scalars)
TRANSFORMERS = Family(_own_slots, _own_emit, _own_scalars)


def _muon_slots(o: Muon, name: str, type_: TensorType) -> dict[str, SlotRule]:
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


def _muon_scale(o: Muon, shape: tuple[int, ...]) -> float:
    rows, columns = shape
    if o.adjust_lr == "original":
        return math.sqrt(max(1.0, rows / columns)) if columns else 1.0
    return 0.2 * math.sqrt(max(rows, columns))


def _muon(o: Muon, name: str, gradient: Value, given: Given) -> dict[str, Value]:
    p, buffer = given.parameter(name), given.slot("buf", name)
    g = given.clipped(gradient)
    buffer = given.add(buffer, given.sub(g, buffer), 1.0 - o.momentum)
    mixed = given.add(g, given.sub(buffer, g), o.momentum) if o.nesterov else buffer
    step = given.times(_orthogonal(o, mixed, given), _muon_scale(o, given.shape(name)))
    decay = o.decay_of(name, given.shape(name))
    if decay:
        step = given.add(step, p, decay)
    (new,) = given.stepped(p, step, given.scalars["lr"])
    return {f"opt.buf.{name}": buffer, f"param.{name}": new}


MUON = Family(_muon_slots, _muon)

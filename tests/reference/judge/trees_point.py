"""Operators of one element of each operand, and random ones (OPENING 7.1, 7.10)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.floats import F32, F64, minimum, rn32
from reference.judge.either import by_count, sqrt
from reference.judge.quantities import Element, Q, RefusedError, bcast
from reference.judge.real import P, of
from reference.language import converted
from reference.ops import REFERENCE
from reference.rand import MASK, gumbel_of, philox

_DATA = "add sub mul div eq ne lt le gt ge".split()
NAMES = [f"aten.{n}.{kind}" for n in _DATA for kind in ("Tensor", "Scalar")]
NAMES += [
    f"aten.{n}"
    for n in (
        "exp log tanh erf sigmoid sin cos rsqrt expm1 log1p exp2 log2 neg abs reciprocal sqrt "
        "square pow.Tensor_Scalar maximum minimum clamp logical_and logical_or logical_not "
        "bitwise_and.Tensor bitwise_or.Tensor bitwise_not bitwise_xor.Tensor "
        "bitwise_left_shift.Tensor bitwise_right_shift.Tensor floor_divide _to_copy relu silu "
        "leaky_relu gelu gelu_backward silu_backward tanh_backward sigmoid_backward "
        "threshold_backward"
    ).split()
]
NAMES += [f"tallystick.{n}" for n in "mask_scale beta_power adamw_step adam_step sgd_step".split()]


def pointwise(x: Element) -> Q:
    """7.1.1: the operator's clause on single elements."""

    def f(read: Any) -> Any:
        inputs: list[Any] = []
        stored = x.op == "aten._to_copy" and x.operands[0] and x.operands[0][0]
        if stored in ("bf16", "f16"):
            (bits,) = yield from read(0, [bcast(x.e, x.out[1], x.shape(0))])
            return np.uint32(converted(int(bits), stored, "f32")).view(F32)
        for k, kind in enumerate(x.operands):
            if kind is None:
                inputs.append(None)
                continue
            found = yield from read(k, [bcast(x.e, x.out[1], kind[1])])
            inputs.append(found.reshape(()))
        if x.op == "aten._to_copy" and x.out[0] == "i64" and inputs[0].dtype == np.float32:
            v = float(inputs[0])
            if not -(2.0**63) <= v < 2.0**63:
                raise RefusedError
        if x.op == "aten.floor_divide" and not int(inputs[1]):
            raise RefusedError
        return REFERENCE[x.op](x.attrs, inputs)[x.output].reshape(())[()]

    return Q("local", x.out[0], "out", f)


def mse_backward(x: Element) -> Q:
    def f(read: Any) -> Any:
        g = (yield from read(0, [bcast(x.e, x.out[1], x.shape(0))]))[0]
        a = (yield from read(1, [x.e]))[0]
        b = (yield from read(2, [x.e]))[0]
        d = (F32(2) * (a - b)) * g
        n = int(np.prod(x.shape(1), dtype=object))
        return by_count(d, n) if x.attrs["reduction"] == "mean" else d

    return Q("local", "f32", "out", f)


def clip(x: Element) -> Q:
    def term(i: int) -> Q:
        def f(read: Any) -> Any:
            return (yield from read(i, [0]))[0]

        return Q("local", "f32", f"s[{i}]", f)

    total = Q("terms", "f32", "total", term, count=len(x.operands))
    norm = Q("local", "f32", "norm", lambda _r, t: done(sqrt(t)), [total])
    if x.output == 1:
        return norm

    def f(_read: Any, n: Any) -> Any:
        return done(minimum(rn32(x.attrs["max_norm"]) / (n + rn32(1e-6)), F32(1))[()])

    def real(_read: Any, n: P) -> Any:
        """9.3.4."""
        found = of(x.attrs["max_norm"]) / (n + 1e-6)
        return done(P(min(found.x, F64(1)) if found.x == found.x else found.x, found.e))

    return Q("local", "f32", "coefficient", f, [norm], lifted=real)


def fold(x: Element) -> Q:
    def element(i: int) -> Q:
        def f(read: Any) -> Any:
            return (yield from read(i, [x.e]))[0]

        return Q("local", "f32", f"x[{i}]", f)

    def f(_read: Any, *given: Any) -> Any:
        return done(REFERENCE[x.op](x.attrs, [np.asarray(v, F32) for v in given])[0][()])

    return Q("local", "f32", "out", f, [element(i) for i in range(len(x.operands))])


def random(x: Element) -> Q:
    def f(read: Any) -> Any:
        rng = yield from read(0, [0, 1])
        if rng[0] < 0 or not 0 <= rng[1] < 2**32:
            raise RefusedError
        attrs = x.attrs | {"shape": [x.e + 1]}
        return REFERENCE[x.op](attrs, [rng])[0][x.e]

    return Q("local", x.out[0], "mask" if x.out[0] == "bool" else "out", f)


def noise_word(x: Element, read: Any) -> Any:
    """The word of an element of `tallystick.gumbel` (NUMERICS 8.8): the place is read and refused
    first, then the key (7.10.2)."""
    classes = x.out[1][1]
    row, c = divmod(x.e, classes)
    place = yield from read(1, [row])
    if not 0 <= place[0] < 2**32:
        raise RefusedError
    rng = yield from read(0, [0, 1])
    seed, step = int(rng[0]), int(rng[1])
    if seed < 0 or not 0 <= step < 2**32:
        raise RefusedError
    block = int(place[0]) * -(-classes // 4) + c // 4
    counter = (block & MASK, block >> 32, x.attrs["draw"], step)
    return philox(counter, (seed & MASK, seed >> 32))[c % 4]


def gumbel(x: Element) -> Q:
    def f(read: Any) -> Any:
        return gumbel_of((yield from noise_word(x, read)))[()]

    return Q("local", "f32", "out", f)


def done(value: Any) -> Any:
    """A formula that reads nothing."""
    return value
    yield


POINT: dict[str, Any] = dict.fromkeys(NAMES, pointwise)
POINT["aten.mse_loss_backward"] = mse_backward
POINT["tallystick.clip_coef"] = clip
POINT["tallystick.fold"] = fold
POINT["tallystick.gumbel"] = gumbel
for _name in ("dropout_mask", "uniform", "normal"):
    POINT[f"tallystick.{_name}"] = random

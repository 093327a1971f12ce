"""Each likely misreading of a clause gives other bits on some stored vector.

A vector that a wrong reading passes shows nothing. Every entry here is the plain reference with
one clause read otherwise; if no stored call told it from the clause, its test would fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import kernel_format as fmt
import numpy as np
import pytest
from misread_attention import ATTENTION
from reference import image, optim
from reference.dot import product
from reference.exact import elementary
from reference.floats import F32, F64, canonical, fma, rn32, rn32_int
from reference.ops import REFERENCE
from reference.rand import gumbel_of, philox, words

from tallystick.numerics.registry import all_ops

Attrs = dict[str, Any]
Inputs = list[Any]
Reading = Callable[[Attrs, Inputs], list[Any]]

KINDS = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in all_ops().items()}
PAIR = ("aten.add.Scalar", "aten.sub.Scalar", "aten.mul.Scalar", "aten.lt.Scalar")


def with_attrs(op: str, **changed: Callable[[Any], Any]) -> Reading:
    """The operator with some attributes read otherwise, where it has them."""

    def run(attrs: Attrs, inputs: Inputs) -> list[Any]:
        own = {k: changed[k](v) if k in changed else v for k, v in attrs.items()}
        return REFERENCE[op](own, inputs)

    return run


def rounded_first(value: float) -> float:
    """NUMERICS 1.9 without its comparison: the attribute is binary32 from the start."""
    return float(rn32(value))


def begun(at_zero: bool) -> Reading:
    """2.1 with p beginning as the first product, or as -0."""

    def run(_attrs: Attrs, inputs: Inputs) -> list[Any]:
        a, b = inputs
        if a.shape[1] == 0 or a.shape[1] > 128:  # one chunk is enough to tell
            return [product(a, b)]
        p = np.full((a.shape[0], b.shape[1]), F32(-0.0))
        for k in range(a.shape[1]):
            left, right = a[:, None, k], b.T[None, :, k]
            p = fma(left, right, p) if at_zero or k else left * right
        return [p]

    return run


def pooled(count: Callable[..., int]) -> Reading:
    """6.15 with another number of outputs along an axis."""

    def run(attrs: Attrs, inputs: Inputs) -> list[Any]:
        true, image._outputs = image._outputs, count
        try:
            return REFERENCE["aten.max_pool2d_with_indices"](attrs, inputs)
        except IndexError:  # an output without a tap: this reading has more of them
            return []
        finally:
            image._outputs = true

    return run


def outputs(one_less: Callable[[int, int, int], bool]) -> Callable[..., int]:
    """6.15's o, `one_less` deciding from ((o - 1)·s, L, p)."""

    def count(size: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
        room = (size + 2 * p - d * (k - 1) - 1) / s
        o = (math.ceil(room) if ceil_mode else math.floor(room)) + 1
        return o - 1 if ceil_mode and one_less((o - 1) * s, size, p) else o

    return count


def mask(threshold: Callable[[float], int], kept: Callable[[int, int], bool]) -> Reading:
    """8.4 with another T, or another comparison."""

    def run(attrs: Attrs, inputs: Inputs) -> list[Any]:
        t = threshold(attrs["p"] * 2.0**32)
        found = words(inputs[0], attrs["draw"], math.prod(attrs["shape"]))
        return [np.array([kept(w, t) for w in found], bool).reshape(attrs["shape"])]

    return run


def adamw(decay: Callable[[Any, Any], Any]) -> Reading:
    """11.2 with another factor of p."""

    def run(attrs: Attrs, inputs: Inputs) -> list[Any]:
        p = inputs[0]
        lr, wd = F64(inputs[4][()]), F64(attrs["weight_decay"])
        # p enters the new p only, so p·decay is made here and the reference's decay is 1.
        plain = {**attrs, "weight_decay": 0.0}
        return optim.OPTIM["tallystick.adamw_step"](plain, [decay(lr, wd)(p), *inputs[1:]])

    return run


def sgd_undamped(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """11.4 with 1 - dampening in binary32."""
    d = F32(1.0) - rn32(attrs["dampening"])
    return optim.OPTIM["tallystick.sgd_step"]({**attrs, "dampening": 1.0 - float(d)}, inputs)


def integers_rounded(op: str) -> Reading:
    """10.1 with a scalar for an i64 tensor rounded to binary32 first."""
    run = with_attrs(op, other=rounded_first, alpha=rounded_first, min=rounded_first)
    return lambda a, x: run(a, x) if x[0].dtype == np.int64 else REFERENCE[op](a, x)


def no_axes(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """3.3 with an empty list of axes reducing nothing."""
    if attrs["dim"] == ():
        return [inputs[0] + F32(0)]
    return REFERENCE["aten.sum.dim_IntList"](attrs, inputs)


def reversed_sources(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """9.3 with the first source of an element left in it."""
    x, index, source = inputs
    if x.ndim:
        index, source = (np.flip(t, attrs["dim"]) for t in (index, source))
    return REFERENCE["aten.scatter.src"](attrs, [x, index, source])


def without_reach(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """9.3 with zeros where no index reaches."""
    x, index, source = inputs
    return REFERENCE["aten.scatter.src"](attrs, [np.zeros_like(x), index, source])


def turned_round(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """3.9 with descending as ascending from the other end: ties in the other order."""
    (x,) = inputs
    if not attrs["descending"] or not x.ndim:
        return REFERENCE["tallystick.rank"](attrs, inputs)
    (up,) = REFERENCE["tallystick.rank"]({**attrs, "descending": False}, inputs)
    return [x.shape[attrs["dim"]] - 1 - up]


def two_zeros(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """3.9 with -0 below +0, as in 1.11."""
    (x,) = inputs
    if x.dtype == F32:
        x = np.where((x == 0) & np.signbit(x), F32(-1e-45), x)
    return REFERENCE["tallystick.rank"](attrs, [x])


def least_nan(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """3.9 with NaN below all."""
    (x,) = inputs
    if x.dtype == F32:
        x = np.where(np.isnan(x), F32(-np.inf), x)
    return REFERENCE["tallystick.rank"](attrs, [x])


def toward_zero(_attrs: Attrs, inputs: Inputs) -> list[Any]:
    """10.10 with the quotient cut off."""
    a, b = np.broadcast_arrays(*inputs)
    pairs = zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)
    cut = [abs(v) // abs(w) * (1 if (v < 0) == (w < 0) else -1) for v, w in pairs]
    return [np.array([(v + 2**63) % 2**64 - 2**63 for v in cut], np.int64).reshape(a.shape)]


def shifted_modulo(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """10.11 with b modulo 64, as a processor shifts."""
    return REFERENCE["aten.bitwise_left_shift.Tensor"](attrs, [inputs[0], inputs[1] % 64])


def shifted_without_sign(_attrs: Attrs, inputs: Inputs) -> list[Any]:
    """10.11 with zeros coming in from the left."""
    a, b = np.broadcast_arrays(*inputs)
    made = a.view(np.uint64) >> np.where((b >= 0) & (b <= 63), b, 63).astype(np.uint64)
    return [made.view(np.int64)]


def folded(split: Callable[[int], int]) -> Reading:
    """10.12 with another number of summands on the left."""

    def total(xs: Inputs) -> Any:
        if len(xs) == 1:
            return xs[0]
        return total(xs[: split(len(xs))]) + total(xs[split(len(xs)) :])

    def read(attrs: Attrs, inputs: Inputs) -> list[Any]:
        count = attrs.get("count", len(inputs)) if attrs["mean"] else 1
        return [total(inputs) / F32(count)]

    return read


def divided_first(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """10.12 with each operand divided."""
    count = F32(attrs.get("count", len(inputs)) if attrs["mean"] else 1)
    given = [np.asarray(x / count, F32) for x in inputs]
    return REFERENCE["tallystick.fold"]({"mean": False}, given)


def without_count(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """10.12 with n in count's place."""
    return REFERENCE["tallystick.fold"]({"mean": attrs["mean"]}, inputs)


def noisy(value: Callable[[int], Any], ceiling: bool = True) -> Reading:
    """8.8 with another value of a word, or rows whose blocks are not rounded up."""

    def read(attrs: Attrs, inputs: Inputs) -> list[Any]:
        (seed, step), place = (int(x) for x in inputs[0]), inputs[1]
        classes = attrs["classes"]
        each = -(-classes // 4) if ceiling else classes // 4
        out = np.zeros((len(place), classes), F32)
        for r, c in np.ndindex(*out.shape):
            block = int(place[r]) * each + c // 4
            counter = (block % 2**32, block >> 32, attrs["draw"], step)
            out[r, c] = value(philox(counter, (seed % 2**32, seed >> 32))[c % 4])
        return [out]

    return read


def logarithms(v: Any) -> Any:
    """−log(−log1p(−v))."""
    return -elementary("log", -elementary("log1p", np.asarray(-v, F32)))


def rounded_twice(word: int) -> Any:
    """8.8 with RN32(word), and then the half."""
    v = (rn32_int(word) + F32(0.5)) * F32(2.0**-32)
    return logarithms(min(v, F32(1 - 2.0**-24)))


def unbounded(word: int) -> Any:
    """8.8 without the least of the two."""
    return logarithms(rn32_int(2 * word + 1) * F32(2.0**-33))


def other_tail(word: int) -> Any:
    """8.8 with −log(−log(v)), which has another resolution where it is large."""
    v = min(rn32_int(2 * word + 1) * F32(2.0**-33), F32(1 - 2.0**-24))
    return -elementary("log", -elementary("log", np.asarray(v, F32)))


def stretches(change: Callable[[Any, Any, int], tuple[Any, Any]]) -> Reading:
    """3.10 with other ends."""

    def read(attrs: Attrs, inputs: Inputs) -> list[Any]:
        tokens, first, last = inputs
        return REFERENCE[COUNT](attrs, [tokens, *change(first, last, len(tokens))])

    return read


def from_the_end(first: Any, last: Any, length: int) -> tuple[Any, Any]:
    """Negative ends count from the end, as Python's do."""
    low = np.maximum(first, -length)
    return np.where(low < 0, low + length, first), last


def strangers_at_the_end(attrs: Attrs, inputs: Inputs) -> list[Any]:
    """3.10 with a token that is no class counted as the nearest one."""
    if not attrs["classes"]:
        return REFERENCE[COUNT](attrs, inputs)
    clipped = np.clip(inputs[0], 0, attrs["classes"] - 1)
    return REFERENCE[COUNT](attrs, [clipped, *inputs[1:]])


NOISE, COUNT = "tallystick.gumbel", "tallystick.occurrences"
POOL, DROP = "aten.max_pool2d_with_indices", "tallystick.dropout_mask"
POW, ADDMM = "aten.pow.Tensor_Scalar", "aten.addmm"
ADAM, ADAMW = "tallystick.adam_step", "tallystick.adamw_step"
SGD = "tallystick.sgd_step"
CASES: dict[str, tuple[str, Reading]] = {
    "2.1 p begins as the first product": ("aten.mm", begun(False)),
    "2.1 p begins as -0": ("aten.mm", begun(True)),
    "2.5 beta is rounded, then compared": (ADDMM, with_attrs(ADDMM, beta=rounded_first)),
    "3.3 no axis given: none reduced": ("aten.sum.dim_IntList", no_axes),
    "6.15 ceil_mode without one less": (POOL, pooled(outputs(lambda at, size, p: False))),
    "6.15 one less from L on": (POOL, pooled(outputs(lambda at, size, p: at >= size))),
    "6.15 one less from L + 2p on": (POOL, pooled(outputs(lambda at, size, p: at >= size + 2 * p))),
    "6.15 one less above L + p": (POOL, pooled(outputs(lambda at, size, p: at > size + p))),
    "8.4 T is truncated": (DROP, mask(math.floor, lambda w, t: w >= t)),
    "8.4 T is rounded up": (DROP, mask(math.ceil, lambda w, t: w >= t)),
    "8.4 T's halves go up": (DROP, mask(lambda v: math.floor(v + 0.5), lambda w, t: w >= t)),
    "8.4 T's halves go down": (DROP, mask(lambda v: math.ceil(v - 0.5), lambda w, t: w >= t)),
    "8.4 a word equal to T is dropped": (DROP, mask(round, lambda w, t: w > t)),
    "3.9 ties turn round": ("tallystick.rank", turned_round),
    "3.9 two zeros": ("tallystick.rank", two_zeros),
    "3.9 NaN is the least": ("tallystick.rank", least_nan),
    "8.8 rows share a block": (NOISE, noisy(gumbel_of, ceiling=False)),
    "8.8 the word is rounded before the half": (NOISE, noisy(rounded_twice)),
    "8.8 v may be 1": (NOISE, noisy(unbounded)),
    "8.8 the other tail": (NOISE, noisy(other_tail)),
    "3.10 the last place is left out": (
        COUNT,
        stretches(lambda a, b, n: (a, np.maximum(b, 0) - 1)),
    ),
    "3.10 a negative place is one from the end": (COUNT, stretches(from_the_end)),
    "3.10 strangers are counted": (COUNT, strangers_at_the_end),
    "9.3 the first source stays": ("aten.scatter.src", reversed_sources),
    "9.3 x is not kept": ("aten.scatter.src", without_reach),
    "10.6 the exponent is rounded first": (POW, with_attrs(POW, exponent=rounded_first)),
    "10.10 the quotient is cut off": ("aten.floor_divide", toward_zero),
    "10.11 a shift modulo 64": ("aten.bitwise_left_shift.Tensor", shifted_modulo),
    "10.11 a shift without sign": ("aten.bitwise_right_shift.Tensor", shifted_without_sign),
    "10.12 in turn": ("tallystick.fold", folded(lambda n: n - 1)),
    "10.12 in halves": ("tallystick.fold", folded(lambda n: n // 2)),
    "10.12 from the right": ("tallystick.fold", folded(lambda n: 1)),
    "10.12 divided first": ("tallystick.fold", divided_first),
    "10.12 count is n": ("tallystick.fold", without_count),
    "11.2 decay in binary32": (
        ADAMW,
        adamw(lambda lr, wd: lambda p: p * (F32(1) - F32(lr) * F32(wd))),
    ),
    "11.2 decay fused into p": (ADAMW, adamw(lambda lr, wd: lambda p: fma(-F32(lr * wd), p, p))),
    "11.2 A1 in binary32": (
        ADAMW,
        with_attrs(ADAMW, beta1=lambda b: 1.0 - float(F32(1) - rn32(b))),
    ),
    "11.3 weight_decay is rounded first": (ADAM, with_attrs(ADAM, weight_decay=rounded_first)),
    "11.4 weight_decay is rounded first": (SGD, with_attrs(SGD, weight_decay=rounded_first)),
    "11.4 1 - dampening in binary32": (SGD, sgd_undamped),
    **{f"10.1 {op}: whole numbers are rounded": (op, integers_rounded(op)) for op in PAIR},
    "10.4 clamp: whole numbers are rounded": ("aten.clamp", integers_rounded("aten.clamp")),
    **ATTENTION,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_a_vector_tells_it(name: str) -> None:
    op, reading = CASES[name]
    stored = [c for group in fmt.groups() for c in fmt.load(group, KINDS) if c.op == op]
    told = []
    for case in stored:
        with np.errstate(all="ignore"):
            got = [canonical(y) for y in reading(dict(case.attrs), list(case.inputs))]
            true = REFERENCE[op](dict(case.attrs), list(case.inputs))
        assert all(map(fmt.same_bits, true, case.outputs))  # the right reading passes them all
        told.append(len(got) != len(case.outputs) or not all(map(fmt.same_bits, got, case.outputs)))
    assert any(told), f"{len(stored)} calls of {op} pass with {name}"
